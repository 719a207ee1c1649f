"""No other user of the machine can read what our processes write, or ask them about messages."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client.connection import read_config_file
from tests.command_in_process import Ended, run_command
from tests.patience import until

HEADRACE = [sys.executable, "-m", "headrace"]
USUAL_UMASK = 0o022
# Certificates and settings without secrets, which clients copy from here.
PUBLIC = {"ca.pem", "server.properties"}


@dataclass(slots=True)
class SecuredNode:
    """A secured node with its delay service and a console, all files below `home`."""

    home: Path
    address: str

    @property
    def client(self) -> dict[str, str]:
        return read_config_file(self.home / "security" / "admin.conf") | {
            "bootstrap.servers": self.address
        }

    def run(self, *words: str, state: Path) -> Ended:
        """A command by a user whose state folder is `state`."""
        config = self.home / "security" / "admin.conf"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(state))
            return run_command(*words, "-b", self.address, "--client-config", str(config))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    home = tmp_path_factory.mktemp("home")
    security = home / "security"
    made = [*HEADRACE, "security", "init", "--folder", str(security)]
    subprocess.run(made, check=True, capture_output=True, umask=USUAL_UMASK)
    command = [*HEADRACE, "start", "--secure", "--security", str(security), "--json"]
    command += ["--listen", "127.0.0.1:0", "--console", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command += ["--data", str(home / "data")]
    log = tmp_path_factory.mktemp("log") / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            umask=USUAL_UMASK,
            env=os.environ | {"XDG_STATE_HOME": str(home / "state")},
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        try:
            yield SecuredNode(home, json.loads(line)["address"])
        finally:
            process.terminate()
            assert process.wait(300) == 0


def mode_of(path: Path) -> int:
    """0 for a link, and for a file that the processes have removed meanwhile."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    return 0 if stat.S_ISLNK(found.st_mode) else found.st_mode


def send_delayed(node: SecuredNode) -> None:
    producer = Producer(node.client)
    producer.produce("orders.delay", b"secret", headers={"headrace-delay": "1h"})
    assert producer.flush(300) == 0


def test_only_the_user_who_runs_the_node_reads_its_files_and_its_delayed_messages(
    node: SecuredNode,
) -> None:
    mine = node.home / "state"
    made = node.run("topics", "create", "orders", "--delayed", state=mine)
    assert made.returncode == 0, made.stderr
    send_delayed(node)

    def is_listed() -> bool:
        """The service may be starting still."""
        done = node.run("delay", "list", "--json", state=mine)
        return done.returncode == 0 and "orders" in done.stdout

    until(is_listed, "the message is not listed")
    another = node.run("delay", "list", state=node.home / "another")
    assert another.returncode == 1 and "secret" not in another.stdout
    assert "only to the user of the machine who runs it" in another.stderr
    assert (node.home / "data-delay").is_dir(), "the service has made its store"
    modes = {path: mode_of(path) for path in node.home.rglob("*") if path.name not in PUBLIC}
    assert not [f"{path} {stat.filemode(mode)}" for path, mode in modes.items() if mode & 0o077]
