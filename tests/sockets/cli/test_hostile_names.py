"""Names, keys, values and errors that would steer a terminal: every command shows them as text.

A client may call its groups, members, transactions, headers and users as it likes. Whoever looks at
them must not run what it wrote: nothing but colours of our own reaches the terminal, no line begins
with what somebody else wrote, and JSON gives the names back exactly.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import typer.main
from typer.exceptions import TyperException

from headrace import Outbox
from headrace.app.retries.dead_letters import why_headers
from headrace.cli.failure import Failure
from headrace.cli.main import COMMANDS, app, module_of
from headrace.cli.options.completion import group_names, topic_names
from headrace.foreign_text import indented
from headrace.services.outbox.engines import engine_for
from headrace.services.outbox.rows import Row
from headrace.services.outbox.store import Store
from headrace.testing import Broker
from headrace.wire.contract.headers import ID, REJECTED_REASON
from headrace.wire.protocol.record_batch import Record, RecordHeader, build
from tests.restored_log import log_as_before
from tests.sockets.cli.conftest import CommandLine

# A window title, a cleared screen, another direction, an 8-bit escape, a forged row, markup.
HOSTILE = "eve\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\r\nFORGED\u2028row [red]x[/red] :smile:"
# Our own: colours, and a line of progress that goes away.
COLOURS = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[K")

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": STANDARD,
    "super.users": "User:ANONYMOUS",
    "transaction.partition.verification.enable": "false",
}
TRIGGERS = """
[triggers.t]
topic = "lines"
url = "http://localhost:1/\x7f"
"""


def walk(folder: Path) -> list[list[str]]:
    """Every command that can show what others wrote, with words that make it do so."""
    return [
        ["topics", "list"],
        ["topics", "list", "--all"],
        ["topics", "describe", "lines"],
        ["topics", "describe", HOSTILE],
        ["topics", "create", HOSTILE],
        ["topics", "create", "other", "--config", f"{HOSTILE}=1"],
        ["topics", "alter", "lines", "--config", f"{HOSTILE}=1"],
        ["topics", "alter", "lines", "--unset", HOSTILE],
        ["topics", "delete", HOSTILE, "--yes"],
        ["topics", "empty", HOSTILE, "--yes"],
        ["produce", HOSTILE, str(folder / "lines")],
        ["produce", "lines", str(folder / HOSTILE.replace("/", "_"))],
        ["consume", "lines"],
        ["consume", "lines", "--plain"],
        ["consume", "lines", "--headers"],
        ["consume", "lines", "--plain", "--headers"],
        ["consume", "lines", "--format", "%t %k %s %h"],
        ["consume", HOSTILE],
        ["delay", "enable", HOSTILE],
        ["delay", "disable", HOSTILE, "--yes"],
        ["delay", "list", "--topic", HOSTILE],
        ["delay", "show", HOSTILE, HOSTILE],
        ["delay", "cancel", HOSTILE, HOSTILE],
        ["delay", "reschedule", HOSTILE, HOSTILE, "--delay", "1s"],
        ["delay", "stats"],
        ["delay", "rejected", HOSTILE],
        ["delay", "rejected", "lines"],
        ["delay", "serve", "--listen", HOSTILE],
        ["delay", "serve", "--admin", HOSTILE],
        ["brokers", "list"],
        ["brokers", "describe", "--all"],
        ["brokers", "features", f"{HOSTILE}=1"],
        ["brokers", "features", f"share.version={HOSTILE}"],
        ["brokers", "alter", "--config", f"{HOSTILE}=1"],
        ["cluster", "status"],
        ["cluster", "balance"],
        ["cluster", "raise-replication", HOSTILE, "--to", "1"],
        ["cluster", "remove-broker", "7", "--dry-run"],
        ["cluster", "add-voter", "7", "--at", "localhost:1"],
        ["cluster", "remove-voter", "7"],
        ["cluster", "drain", "7"],
        ["cluster", "undrain", "7"],
        ["cluster", "restart", "--rolling", "--data", HOSTILE],
        ["console", "--listen", HOSTILE],
        ["http", "--listen", HOSTILE],
        ["format", "--config", HOSTILE],
        ["format", "--data", str(folder / "format"), "--cluster-id", HOSTILE],
        ["groups", "list"],
        ["groups", "describe", HOSTILE],
        ["groups", "describe", HOSTILE, "--members"],
        ["groups", "describe", HOSTILE + "!"],
        ["groups", "reset", HOSTILE, "--topic", "lines", "--to-end"],
        ["groups", "reset", HOSTILE + "!", "--topic", "lines", "--to-end"],
        ["groups", "reset", "new", "--topic", HOSTILE, "--to-end", "--export"],
        ["groups", "delete", HOSTILE, "--yes"],
        ["dead-letters", "list"],
        ["dead-letters", "list", "lines.eve.dead"],
        ["dead-letters", "show", "lines.eve.dead", "0/0"],
        ["dead-letters", "redrive", "lines.eve.dead"],
        ["dead-letters", "discard", "lines.eve.dead", "--execute", "--reason", HOSTILE],
        ["dead-letters", "list", "lines.eve.dead", "--settled"],
        ["backlog", "status", "--watch-for", "1ms"],
        ["backlog", "status", HOSTILE, "--watch-for", "1ms"],
        ["backlog", "add-partitions", "lines", "--to", "9"],
        ["backlog", "add-partitions", HOSTILE, "--to", "9"],
        ["backlog", "park", "lines", "--group", HOSTILE, "--to", outbox_at(folder)],
        ["backlog", "park", "lines", "--group", HOSTILE, "--to", HOSTILE, "--execute"],
        ["backlog", "bring-back", "lines", "--group", HOSTILE, "--from", outbox_at(folder)],
        ["backlog", "expire", "lines", "--group", HOSTILE, "--older-than", "1h"],
        ["backlog", "widen", "lines", "--group", HOSTILE],
        ["backlog", "widen", HOSTILE, "--group", HOSTILE],
        ["replay", "copy", "lines", "--to", HOSTILE],
        [
            "replay",
            "copy",
            "lines",
            "--to",
            "lines",
            "--name",
            HOSTILE,
            "--by",
            HOSTILE,
            "--execute",
        ],
        ["replay", "copy", "lines", "--to", "lines", "--where", HOSTILE],
        ["replay", "group", HOSTILE, "--topic", "lines", "--from-offset", "0"],
        ["replay", "undo", HOSTILE],
        ["replay", "list"],
        ["demo", "--seconds", HOSTILE],
        ["outbox", "init", HOSTILE],
        ["outbox", "init", outbox_at(folder)],
        ["outbox", "status", outbox_at(folder)],
        ["outbox", "list", outbox_at(folder)],
        ["outbox", "show", outbox_at(folder), "1"],
        ["outbox", "retry", outbox_at(folder), "1"],
        ["outbox", "discard", outbox_at(folder), "2", "--yes"],
        ["outbox", "relay", HOSTILE],
        ["outbox", "relay", outbox_at(folder), "--on-poison", HOSTILE],
        ["outbox", "relay", outbox_at(folder), "--keep", HOSTILE],
        ["outbox", "relay", outbox_at(folder), "--metrics", HOSTILE],
        ["outbox", "resume", outbox_at(folder), "--shard", "9", "--after", "0"],
        ["transactions", "list"],
        ["transactions", "describe", HOSTILE],
        ["transactions", "abort", HOSTILE],
        ["acls", "list"],
        ["acls", "add", "-p", f"User:{HOSTILE}", "-o", "read", "--group", HOSTILE],
        ["acls", "remove", "-p", HOSTILE, "--yes"],
        ["quotas", "list"],
        ["quotas", "set", "producer_byte_rate=9", "--user", HOSTILE],
        ["quotas", "remove", "producer_byte_rate", "--user", HOSTILE],
        ["users", "list"],
        ["users", "add", HOSTILE, "--generate"],
        ["users", "remove", HOSTILE],
        ["triggers", "check", str(folder / "triggers.toml")],
        ["triggers", "check", HOSTILE],
        ["segment", "dump", str(folder / "00000000000000000000.log"), "--records"],
        ["segment", "dump", HOSTILE],
        ["segment", "check", str(folder)],
        ["segment", "check", HOSTILE],
        ["segment", "repair", HOSTILE],
        ["segment", "repair", str(folder), "--way", HOSTILE],
        ["doctor"],
        ["doctor", "--topic", HOSTILE],
        ["app", "describe", HOSTILE],
        ["pipeline", "list", "--data", str(folder)],
        ["pipeline", "status", HOSTILE],
        ["pipeline", "stop", HOSTILE],
        ["pipeline", "reset", HOSTILE, "--yes"],
        ["pipeline", "new", HOSTILE],
        ["pipeline", "report", HOSTILE, "--html", str(folder / "page")],
        ["pipeline", "report", "page-views", "--html", str(folder / "page"), "--zone", HOSTILE],
        ["lake", "compact", HOSTILE],
        ["lake", "versions", HOSTILE],
        ["lake", "show", HOSTILE],
        ["lake", "generate", HOSTILE, "--records", "1"],
        ["security", "init", "--user", HOSTILE],
        ["profile", "create", HOSTILE, "--bootstrap", "localhost:1"],
        ["profile", "create", "p", "--bootstrap", HOSTILE, "-X", f"client.id={HOSTILE}"],
        ["profile", "list"],
        ["profile", "show"],
        ["profile", "show", HOSTILE],
        ["profile", "use", HOSTILE],
        ["profile", "delete", HOSTILE],
        ["profile", "delete", "p"],
        ["outbox", "init", f"sqlite:///{folder}/box.db"],
        ["outbox", "status", f"sqlite:///{folder}/box.db"],
        ["outbox", "init", HOSTILE],
        ["outbox", "status", HOSTILE],
        ["outbox", "relay", HOSTILE],
        ["outbox", "relay", f"sqlite:///{folder}/box.db", "--on-poison", HOSTILE],
        ["outbox", "list", f"sqlite:///{folder}/{HOSTILE.replace('/', '_')}"],
        ["outbox", "show", HOSTILE, "1"],
        ["outbox", "retry", HOSTILE, "1"],
        ["outbox", "discard", HOSTILE, "1", "--yes"],
        ["outbox", "resume", HOSTILE, "--shard", "0", "--after", "0"],
        ["start", "--set", f"{HOSTILE}=1"],
        ["start", "--listen", HOSTILE],
        ["start", "--config", HOSTILE],
        ["app", "run", HOSTILE],
        ["app", "run", f"{HOSTILE}:app"],
        ["triggers", "run", HOSTILE],
        ["pipeline", "run", HOSTILE],
        ["pipeline", "run", f"{HOSTILE}.py:{HOSTILE}"],
        ["lake", "fill", HOSTILE],
        ["ship", "logs", HOSTILE, "--once"],
        ["ship", "logs", "x", "--topic", HOSTILE],
        ["ship", "logs", "x", "--zone", HOSTILE],
        ["ship", "metrics", "--scrape", HOSTILE],
        ["logs", "search", "--level", HOSTILE],
        ["logs", "search", "--from", HOSTILE],
        ["track", "serve", "--listen", HOSTILE],
        ["track", "generate", "--collector", HOSTILE],
        ["track", "generate", "--start", HOSTILE],
        [HOSTILE],
        ["topics", HOSTILE],
        ["topics", "list", f"--{HOSTILE}"],
        ["consume", "lines", "--from", HOSTILE],
        ["topics", "list", "-X", HOSTILE],
        ["topics", "list", "-X", f"{HOSTILE}=1"],
    ]


def outbox_at(folder: Path) -> str:
    return f"sqlite:///{folder / 'shop.db'}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    (made / "lines").write_text("x\n")
    store = Store(engine_for(outbox_at(made)))
    Outbox(store.engine).create()
    raw = HOSTILE.encode()
    row = Row(1, HOSTILE, raw, raw, HOSTILE, HOSTILE, 0)
    store.park(0, [(row, HOSTILE, False)])
    store.save_problem(0, HOSTILE)
    assert store.take(0, HOSTILE, 10**9)
    store.engine.dispose()
    (made / "triggers.toml").write_text(TRIGGERS)
    record = Record(HOSTILE.encode(), HOSTILE.encode(), headers=[RecordHeader(HOSTILE, b"x")])
    (made / "00000000000000000000.log").write_bytes(bytes(build([record], base_offset=0)))
    return made


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With one of everything that a client can name as it likes."""
    with Broker(settings=SETTINGS) as running:
        at = {"bootstrap.servers": running.bootstrap, "client.id": HOSTILE, "log_level": 0}
        plain = confluent_kafka.Producer(at)
        plain.produce("lines", HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
        why: Any = why_headers(
            LookupError(HOSTILE),
            attempts=1,
            first_at_ms=0,
            last_at_ms=0,
            origin=("lines", 0, 0),
            group=HOSTILE,
        )
        for name in ("lines.eve.dead", "lines.eve.retry"):
            plain.produce(name, HOSTILE, key=HOSTILE, headers=[(HOSTILE, b"x"), *why])
        refused: Any = [(REJECTED_REASON, HOSTILE.encode()), (ID, HOSTILE.encode())]
        plain.produce("lines.delay.rejected", HOSTILE, key=HOSTILE, headers=refused)
        assert plain.flush(60) == 0
        sender = confluent_kafka.Producer(
            {**at, "transactional.id": HOSTILE, "transaction.timeout.ms": 900_000}
        )
        sender.init_transactions(20)
        sender.begin_transaction()
        sender.produce("lines", b"open")
        assert sender.flush(60) == 0
        reader = confluent_kafka.Consumer(
            {
                **at,
                "group.id": HOSTILE,
                "group.instance.id": HOSTILE,
                "auto.offset.reset": "earliest",
                # It does not poll again, and a group without members could be deleted.
                "max.poll.interval.ms": 3_600_000,
            }
        )
        reader.subscribe(["lines"])
        assert reader.poll(60) is not None
        reader.commit(asynchronous=False)
        yield running
        reader.close()
        # A command may have ended its transaction already, or its time may be up.
        with suppress(confluent_kafka.KafkaException):
            sender.abort_transaction(20)


@contextmanager
def terminal(shown: list[str]) -> Iterator[None]:
    """Standard output and error are a terminal; what it would show is appended to `shown`."""
    ours, theirs = pty.openpty()
    raw = io.BytesIO()

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 65536):
                raw.write(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w", encoding="utf-8") as screen:
        with redirect_stdout(screen), redirect_stderr(screen):
            yield
        screen.flush()
    reader.join()
    os.close(ours)
    shown.append(raw.getvalue().decode().replace("\r\n", "\n"))


def outcome(words: list[str]) -> str:
    """What the command says when it fails, as `main.run` would print it; "" if it does not."""
    try:
        with log_as_before():
            app(words, standalone_mode=False)
    except Failure as failure:
        return indented(str(failure))
    except TyperException as misuse:
        return indented(misuse.format_message())
    return ""


def assert_harmless(words: list[str], shown: str) -> None:
    plain = COLOURS.sub("", shown)
    for line in plain.split("\n"):
        assert line.replace("\t", "").isprintable(), (words[:2], line)
        if not {"--plain", "--format"} & set(words):  # there a value's own line ends stay
            assert not line.startswith("FORGED"), (words[:2], line)


@pytest.mark.integration
def test_no_command_lets_anything_through(
    broker: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.chdir(folder)
    everything = []
    for words in walk(folder):
        shown: list[str] = []
        with terminal(shown):
            said = outcome(words)
        assert_harmless(words, shown[0] + said)
        everything.append(shown[0] + said)
    together = "".join(everything)
    assert together.count("[red]x[/red] :smile:") > 40, "it was shown, and its markup with it"


@pytest.mark.integration
def test_no_command_lets_anything_through_as_json(
    broker: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line is one document, or what a person is told beside it."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.chdir(folder)
    looked_at = 0
    for words in walk(folder):
        shown: list[str] = []
        with terminal(shown):
            said = outcome([*words, "--json"])
        assert_harmless(words, shown[0] + said)
        looked_at += "FORGED" in shown[0]
    assert looked_at > 10


def test_a_name_that_a_shell_would_run_is_not_offered_to_it(broker: Broker) -> None:
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "a$(touch ran)"}
    )
    reader.commit(offsets=[confluent_kafka.TopicPartition("lines", 0, 0)], asynchronous=False)
    reader.close()
    headrace = CommandLine(broker.bootstrap)
    assert "a$(touch ran)" in {one["group"] for one in headrace.json("groups", "list")}
    context = typer.Context(typer.main.get_command(import_module(module_of("groups")).app))
    context.params = {"bootstrap": broker.bootstrap}
    assert group_names(context, "") == []
    assert "lines.eve.dead" in topic_names(context, "lines")


def test_a_pipe_gets_one_row_per_group(broker: Broker, folder: Path) -> None:
    headrace = CommandLine(broker.bootstrap)
    lines = headrace("groups", "list").splitlines()
    assert len(lines) == len(headrace.json("groups", "list")) + 1
    assert all(line.isprintable() for line in lines)


def test_json_is_exact_and_harmless(broker: Broker) -> None:
    headrace = CommandLine(broker.bootstrap)
    for words, found in (
        (["groups", "list"], lambda said: [one["group"] for one in said]),
        (["transactions", "list"], lambda said: [one["transactional_id"] for one in said]),
    ):
        said = headrace(*words, "--json")
        assert said.replace("\n", "").isprintable()
        assert HOSTILE in found(json.loads(said))
    [record] = headrace.json_lines("consume", "lines", "--count", "1")
    assert record["key"] == record["value"] == record["headers"][0]["name"] == HOSTILE


def test_a_value_into_a_pipe_is_as_it_was(broker: Broker) -> None:
    headrace = CommandLine(broker.bootstrap)
    assert headrace("consume", "lines", "-n", "1") == HOSTILE.replace("\r\n", "\n") + "\n"
    assert headrace("consume", "lines", "-n", "1", "--format", "%k").startswith("eve\x1b]0;owned")


def test_every_command_is_walked(folder: Path) -> None:
    walked = {tuple(words[:2]) for words in walk(folder)} | {(words[0],) for words in walk(folder)}
    for name in COMMANDS:
        command = typer.main.get_command(import_module(module_of(name)).app)
        leaves: list[tuple[str, ...]] = [
            (name, leaf) for leaf in getattr(command, "commands", ())
        ] or [(name,)]
        for leaf in leaves:
            assert leaf in walked, f"{' '.join(leaf)}: walk it"
