"""`headrace start`: what it loads, what it shows, how it ends, how it refuses."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.client.admin.admin import Admin
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import connection

START = [sys.executable, "-m", "headrace", "start", "--listen", "127.0.0.1:0"]
# Seconds until a node counts as one that does not end, on a machine with little time to spare.
ENDS_WITHIN_S = 300


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """The node, and what it said when it was ready; killed if the test has not ended it."""
    with subprocess.Popen([*START, "--json", *words], stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            yield node, json.loads(node.stdout.readline())
        finally:
            node.kill()


def test_it_says_where_it_is_and_ends_cleanly(tmp_path: Path) -> None:
    """By both signals; the second time with a properties file, over which options win. No console
    is shown: none was asked for, and nobody watches."""
    data = tmp_path / "from-option"
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/from-file\nnum.partitions=4\n")
    for number, words in ((signal.SIGTERM, []), (signal.SIGINT, ["--config", str(file)])):
        with started("--data", str(data), *words) as (node, ready):
            assert ready["data"] == str(data)
            assert ready["pid"] == node.pid
            assert "console" not in ready
            host, _, port = ready["address"].rpartition(":")
            socket.create_connection((host, int(port)), timeout=300).close()
            node.send_signal(number)
            assert node.wait(ENDS_WITHIN_S) == 0
        assert (data / ".kafka_cleanshutdown").exists()
        (data / ".kafka_cleanshutdown").unlink()
    assert not (tmp_path / "from-file").exists()


def test_its_last_line_says_where_the_data_is(tmp_path: Path) -> None:
    command = [*START, "--no-console", "--set", "offsets.topic.num.partitions=1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as node:
        assert node.stdout is not None
        while "Ctrl-C ends it" not in node.stdout.readline():
            pass
        node.send_signal(signal.SIGINT)
        _, said = node.communicate(timeout=ENDS_WITHIN_S)
    assert said.splitlines()[-1] == "Stopped. Data is in ./headrace-data."


def test_a_console_runs_beside_it_if_asked_for_and_ends_with_it(tmp_path: Path) -> None:
    """Also after a kill -9."""
    parked = str(tmp_path / "parked")
    words = ("--data", str(tmp_path / "node"), "--console", "127.0.0.1:0")
    with started(*words, "--console-park-to", parked) as (node, ready):
        host, _, port = ready["console"].removeprefix("http://").rpartition(":")
        asked = http.client.HTTPConnection(host, int(port), timeout=300)
        asked.request("GET", "/topics")
        answer = asked.getresponse()
        assert answer.status == 200
        assert b"There are no topics yet" in answer.read()
        cluster = connection(bootstrap=ready["address"])
        Admin(cluster).topics.create("orders", partitions=1)
        Groups(cluster).move("billing", [Move("orders", 0, None, 0, 0)])
        asked.request("GET", "/groups/backlog?name=billing")
        assert f"is parked in {parked}".encode() in asked.getresponse().read()
        node.kill()
        node.wait(ENDS_WITHIN_S)
        # The console closes the connection that it held for us when it ends.
        assert asked.sock is not None
        asked.sock.settimeout(ENDS_WITHIN_S)
        assert asked.sock.recv(1) == b""
        asked.close()


def test_it_loads_no_client_and_no_rich() -> None:
    script = (
        "import sys, headrace.cli.main, headrace.cli.node.start; print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    loaded = set(done.stdout.splitlines())
    assert "headrace.node.process.server" in loaded
    assert not {name for name in loaded if name.startswith("headrace.client")}
    assert not loaded & {"confluent_kafka", "rich", "pydantic", "asyncio"}


def test_a_place_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    """Other refusals: tests/unit/cli/test_command.py."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        for option in ("--listen", "--console"):
            said = subprocess.run(
                [*START, option, place, "--data", str(tmp_path)],
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert said.returncode == 1, said.stderr
            assert said.stderr.count("\n") == 1, said.stderr
            assert place in said.stderr
