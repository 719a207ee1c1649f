"""Passwords that were planted are in no log, no error, no command line and no file.

Beside the node's own test with every logger at DEBUG (tests/sockets/test_past_holes.py), and beside
test_least_privilege.py, which looks through all that its services leave behind.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.node.process.listeners.tls_context import tls_files
from headrace.node.process.settings.settings import load_settings
from headrace.pipelines.declaration import Jdbc, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder
from tests.interop.secured import ADMIN, PASSWORD, secured_node
from tests.services.a_guarded_node import (
    PROGRAM,
    USERS,
    Guarded,
    ended,
    places_of,
    until,
)

PLANTED = "an0ther-5ecret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
# It waits for a moment whether somebody else serves delayed messages, then starts a service.
APP = """
from headrace import App, Retry

app = App(group="billing", settings={"debug": "all"})


@app.on("orders", retry=Retry(attempts=3, first="3s", longest="3s"))
async def handle(order: dict):
    raise OSError("the bank does not answer")
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    settings = {"headrace.delay.service": "off", "headrace.audit": "topic"}
    with secured_node("headrace", tmp_path / "node", USERS, **settings) as node:
        yield Guarded(node, tmp_path)


def descendants(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if text and int(text.rpartition(")")[2].split()[1]) == pid:
            child = int(status.parent.name)
            found += [child, *descendants(child)]
    return found


def test_an_app_its_child_and_the_audit(guarded: Guarded, tmp_path: Path) -> None:
    """With librdkafka's own log at its loudest."""
    Topics(guarded.admin).create("orders", partitions=1)
    worker = guarded.start_app("loud_app", APP, ADMIN)
    try:
        until(
            lambda: any("delay.main" in _command_line(pid) for pid in descendants(worker.pid)),
            said=lambda: guarded.log("loud_app"),
        )
        for pid in (worker.pid, *descendants(worker.pid)):
            assert PASSWORD not in _command_line(pid)
        until(lambda: "SASL" in guarded.log("loud_app").upper())
        failed = guarded.done(ADMIN, "topics", "list", "-X", f"sasl.password={PLANTED}")
        assert failed.returncode == 1 and PLANTED not in failed.stdout + failed.stderr
        # It is written a few times a second, and the failed login is not the first line.
        until(lambda: b"login-failed" in b"".join(guarded.values("headrace.audit", 1)))
        assert PLANTED.encode() not in b"".join(guarded.values("headrace.audit", 1))
    finally:
        ended(worker)
    assert places_of(PASSWORD, tmp_path) == []
    assert places_of(PLANTED, tmp_path) == []


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""  # it has just ended


JAAS = f'{PLAIN} required username="ann" password="{PLANTED}"'


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "list", "-X", f"sasl.password={PLANTED}", "-X", "no.such.setting=1"),
        ("topics", "list", "-X", f"sasl.password={PLANTED}", "-X", "debug=all"),
        ("topics", "list", "-X", f"sasl.pasword={PLANTED}"),
        ("topics", "list", "-X", f"ssl.key.pem={PLANTED}", "-X", "security.protocol=ssl"),
        ("topics", "list", "-X", "security.protocol=sasl_ssl", "-X", f"sasl.jaas.config={JAAS}"),
        ("start", "--set", f"sasl.jaas.config={JAAS}", "--set", "listeners=SASL_PLAINTEXT://:0"),
        ("start", "--set", f"ssl.keystore.password={PLANTED}"),
        (
            "start",
            "--set",
            f"listener.name.plaintext.plain.sasl.jaas.confg={PLANTED}",
            "--set",
            "x",
        ),
        ("start", "--set", f"delegation.token.secret.key={PLANTED}"),
    ],
    ids=lambda words: " ".join(words).replace(PLANTED, "...")[:60],
)
def test_what_is_refused_does_not_repeat_it(words: tuple[str, ...], tmp_path: Path) -> None:
    environment = os.environ | {"HEADRACE_BOOTSTRAP": "127.0.0.1:1"}
    done = subprocess.run(
        [PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode != 0, done.stdout
    assert PLANTED not in done.stdout + done.stderr, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"security.protocol=SASL_SSL\n{PLANTED}\n",
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\nno.such=1\n",
        f'sasl.jaas.config={PLAIN} required user="ann" pass="{PLANTED}";\n',
        f"sasl.pasword={PLANTED}\n",
    ],
    ids=["no setting", "a setting too many", "no login", "misspelt"],
)
def test_a_client_file_that_is_refused_is_not_repeated(text: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    words = ("topics", "list", "--client-config", str(path), "--bootstrap", "127.0.0.1:1")
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout
    assert PLANTED not in done.stdout + done.stderr, done.stderr


def test_a_pipeline_does_not_show_its_logins(tmp_path: Path) -> None:
    """Options of topics and databases are for Spark alone, not for what is written or printed."""
    options = {"kafka.sasl.jaas.config": JAAS, "kafka.ssl.key.password": PLANTED}
    url = f"jdbc:postgresql://db/shop?user=ann&password={PLANTED}"
    declared = pipeline(
        source=Topic("orders", options=options),
        sink=Jdbc("sums", url=url, options={"password": PLANTED}, key="id"),
        name="sums",
    )(lambda rows: rows)
    shown = [repr(declared), repr(declared.source), repr(declared.sink), f"{declared.describe()}"]
    shown.append(repr(ClientSettings({"bootstrap.servers": "x:1", "sasl.password": PLANTED})))
    folder = Folder(tmp_path, "sums")
    folder.identity(declared)
    other = pipeline(source=Topic("others", options=options), sink=declared.sink, name="sums")
    with pytest.raises(PipelineError) as refused:
        folder.identity(other(lambda rows: rows))
    assert PLANTED not in "".join((*shown, str(refused.value)))
    assert places_of(PLANTED, tmp_path) == []


def test_settings_do_not_show_what_they_hold(tmp_path: Path) -> None:
    """Whoever writes one of these objects into a log writes no password into it."""
    secrets = {
        "sasl.jaas.config": f"{JAAS};",
        "ssl.key.password": PLANTED,
        "ssl.keystore.key": PLANTED,
        "ssl.keystore.certificate.chain": "a chain",
        "ssl.keystore.type": "PEM",
    }
    settings = load_settings(overrides=secrets, data=tmp_path)
    for_node = settings.for_node({"PLAINTEXT": 9092})
    files = tls_files(settings.values)
    assert PLANTED not in f"{settings!r} {for_node!r} {files!r}"
