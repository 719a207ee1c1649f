"""Poison in our own topics: it ends no reader, and is counted and logged with its place."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.prometheus_text import render
from headrace.services.delay.timeline import far_records
from headrace.services.delay.timeline.progress import (
    IntakeProgress,
    from_commit,
    to_metadata,
)
from headrace.services.http.dialects.v2 import Written
from headrace.services.http.writes.idempotency_window import Entry
from headrace.services.outbox import positions
from headrace.services.outbox.shard import Position
from headrace.services.redrive.settled import REDRIVEN, Settled, read_settled
from headrace.services.replay import journal
from headrace.wire.contract import confirmations, delay_topics, headers, own_records
from headrace.wire.contract.own_records import FAULTS, OwnRecords, UnreadableRecord, json_object
from tests.unit.wire.contract.poison import changed, keys, unreadable

log = logging.getLogger("tests.own")
COPY = journal.CopyEntry("n/1", "t", "ID", "u", {"x": 1}, {0: 3}, {0: 5}, "me", 7, 8)
MOVE = journal.GroupEntry("g", journal.MOVED, [("t", 0, None)], [("t", 0, 1)], "me", 9)
SETTLED = Settled("t/0/1", 5, REDRIVEN, "me", 6)
REGISTERED = delay_topics.register("orders", 5)
COMMIT = to_metadata(IntakeProgress(1, (2, 3), 4), "id")
BEGIN, _, METADATA = COMMIT.partition(" ")


def of_value(read: Callable[[bytes | None], Any]) -> Callable[[bytes | None, bytes | None], Any]:
    return lambda key, value: read(value)


def read_commit(key: bytes | None, value: bytes | None) -> Any:
    """The metadata of a commit is text."""
    return from_commit(1, f"{BEGIN} {(value or b'').decode()}")


def read_far_key(key: bytes | None, value: bytes | None) -> Any:
    return far_records.record_id_of(key or b"")


# Every reader of records that we write as JSON: how it reads, and a record that it takes.
READERS: dict[str, tuple[Callable[[bytes | None, bytes | None], Any], bytes, bytes]] = {
    "delay registry": (delay_topics.read_registration, REGISTERED.key, REGISTERED.value),
    "replay, copies": (journal.parsed, COPY.key, journal.written(COPY)),
    "replay, moves": (journal.parsed, MOVE.key, journal.written(MOVE)),
    "dead letters": (read_settled, SETTLED.key, SETTLED.value),
    "outbox positions": (
        of_value(positions.understood),
        b"o/1",
        positions.written(Position(5, 6, (7,))),
    ),
    "confirmations": (
        confirmations.read_confirmation,
        b"m",
        confirmations.written(outbox_id="o", message_id="m", group="g"),
    ),
    "idempotency keys": (
        of_value(Entry.read),
        b"k",
        Entry("f", [Written(0, 1, 2)]).to_bytes(),
    ),
    "delay commits": (read_commit, b"", METADATA.encode()),
}


@pytest.mark.parametrize("name", READERS)
def test_a_good_record_is_read(name: str) -> None:
    read, key, value = READERS[name]
    own = OwnRecords(name, log)
    assert own.read(read, key, value, partition=0, offset=0) is not None
    assert own.skipped == 0


@pytest.mark.parametrize("name", READERS)
def test_poison_is_skipped_and_the_next_record_is_read(name: str) -> None:
    read, key, good = READERS[name]
    own = OwnRecords(name, log)
    for offset, value in enumerate(unreadable()):
        assert own.read(read, key, value, partition=0, offset=offset) is None, value and value[:50]
        assert own.skipped == offset + 1
        assert own.read(read, key, good, partition=0, offset=offset) is not None


@pytest.mark.parametrize("name", READERS)
def test_fields_and_keys_that_we_never_write_end_no_reader(name: str) -> None:
    """Some are taken all the same, such as another text; none raises anything else."""
    read, key, good = READERS[name]
    for value in changed(good):
        OwnRecords(name, log).read(read, key, value, partition=0, offset=0)
    for other in keys(key):
        OwnRecords(name, log).read(read, other, good, partition=0, offset=0)


def test_far_records_that_we_never_wrote_are_refused() -> None:
    for key in keys(b"orders.delay/0/5"):
        with pytest.raises(FAULTS):
            read_far_key(key, None)
    for appended in (b"", b"x", b"9" * 5_000, b"9" * 30, b"-1", b"\xff", None):
        with pytest.raises(FAULTS):
            far_records.read(
                b"orders.delay/0/5",
                b"v",
                [(headers.FAR_APPENDED_AT, appended), (headers.DELIVER_AT, b"7")],
            )


def test_a_skipped_record_is_logged_once_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    own = OwnRecords("headrace.delay.topics", log)
    for _ in range(3):
        own.read(delay_topics.read_registration, b"orders", b"[" * 100_000, partition=2, offset=7)
    own.read(delay_topics.read_registration, b"orders", b'{"a":"\x1b[2J', partition=2, offset=8)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and own.skipped == 4
    assert said[0].startswith("headrace.delay.topics-2, offset 7: the record cannot be read")
    assert all(line.isprintable() and len(line) < 400 for line in said)


def test_skipped_records_are_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_records, "_skipped", type(own_records._skipped)())
    assert list(own_records.skipped_families()) == []
    OwnRecords("headrace.replay", log).read(journal.parsed, b"x", b"y", partition=0, offset=0)
    text = render(own_records.skipped_families())
    assert 'headrace_unreadable_records_total{topic="headrace.replay"} 1' in text


def test_nesting_is_bounded_whatever_pythons_own_limit_is() -> None:
    deep = own_records.DEEPEST
    assert json_object(b'{"a":' * (deep - 1) + b"1" + b"}" * (deep - 1))
    with pytest.raises(UnreadableRecord):
        json_object(b'{"a":' * deep + b"1" + b"}" * deep)


# Modules that decode JSON of another kind: requests, files, users' own records.
DECODES_OTHERS = {
    "services/delay/main.py",
    "services/delay/timeline/store.py",
    "services/http/dialects/cloud_events.py",
    "services/http/users/credentials.py",
    "services/backlog/parked_rows.py",
    "services/backlog/parked_files.py",
    "services/shipping/records.py",
    "services/shipping/search.py",
    "services/shipping/formats.py",
    "services/shipping/positions.py",
    "services/outbox/rows.py",
    "services/tracking/events.py",
    "wire/contract/own_records.py",
    "client/serializers.py",
    "client/delay/instances.py",
    "client/login/bearer.py",
}


def test_no_other_module_decodes_records_of_ours_by_itself() -> None:
    """A new reader of our own topics uses `json_object`; other JSON is named above."""
    root = Path(headrace.__file__).parent
    found = {
        str(path.relative_to(root))
        for folder in ("services", "wire/contract", "client")
        for path in (root / folder).rglob("*.py")
        if re.search(r"\bloads\(", path.read_text())
    }
    assert found == DECODES_OTHERS


def test_the_reason_of_a_skipped_record_steers_no_terminal() -> None:
    """A key of another user is part of the reason, and commands without a log print it."""
    try:
        delay_topics.read_registration(b"\x1b]0;owned\x07\x1b[2J\nFORGED \xe2\x80\xae", b"{}")
    except ValueError as fault:
        assert own_records.reason_of(fault).isprintable()
        assert "FORGED" in own_records.reason_of(fault)
