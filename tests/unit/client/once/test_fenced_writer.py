"""What becomes of a transaction, for each call that can fail and each kind of error.

A committed transaction must never be taken for one that was not written (it would be doubled), nor
an open one for a committed one (it would be lost).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace.client.faults import Fault, codes
from headrace.client.intake import RawRecord
from headrace.client.once import writer as once
from headrace.client.once.marks import RecordMark
from headrace.client.once.outcome import (
    Committed,
    NothingWritten,
    Outcome,
    RecordsRefused,
    Unknown,
)
from headrace.client.once.writer import FencedWriter, Patience

MARK = RecordMark("positions", 0, b"me", b"7")
PATIENCE = Patience(call_s=1, commit_s=60, other_s=60)


def fault(code: int = KafkaError._FAIL, **flags: bool) -> Fault:
    return Fault(KafkaError(code, "because", **flags))


FATAL = fault(KafkaError._FENCED, fatal=True)
MUST_ABORT = fault(txn_requires_abort=True)
PLAIN = fault(KafkaError._STATE)
AGAIN = fault(KafkaError._TIMED_OUT, retriable=True)
SILENT = fault(KafkaError._ALL_BROKERS_DOWN)


class ARecord:
    """As librdkafka reports one that was not written."""

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"


class Scripted:
    """librdkafka's part: each call fails as its script says, then succeeds."""

    def __init__(self, settings: Mapping[str, Any], **told: Callable[..., None]) -> None:
        self.refused, self.failed = told["refused"], told["failed"]
        self.scripts: dict[str, list[Fault]] = {}
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.scripts.get(name):
            raise self.scripts[name].pop(0)

    def take_over(self, timeout_s: float) -> None:
        self._call("take_over")

    def begin(self) -> None:
        self._call("begin")

    def send(self, *record: Any) -> None:
        self._call("mark" if record[0] == "positions" else "send")

    def commit(self, timeout_s: float) -> None:
        self._call("commit")

    def abort(self, timeout_s: float) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[FencedWriter, Scripted]:
    monkeypatch.setattr(once, "TransactionWriter", Scripted)
    writer = FencedWriter(
        {},
        PATIENCE,
        never_taken=codes("MSG_SIZE_TOO_LARGE"),
        distrusted=codes("_ALL_BROKERS_DOWN"),
    )
    assert isinstance(writer.calls, Scripted)
    assert writer.open(writer.calls.calls.copy) == ["take_over"], "the mark is read fenced"
    return writer, writer.calls


def write(writer: FencedWriter) -> Outcome:
    return writer.write(lambda calls: calls.send("orders", 0, b"k", b"v", None, 0), MARK)


def test_records_then_the_mark_then_the_commit(made: tuple[FencedWriter, Scripted]) -> None:
    writer, script = made
    outcome = write(writer)
    assert isinstance(outcome, Committed) and not outcome.is_spent
    assert script.calls == ["take_over", "begin", "send", "mark", "commit"]


@pytest.mark.parametrize("at", ["begin", "send", "mark"])
@pytest.mark.parametrize("why", [MUST_ABORT, PLAIN, FATAL], ids=["must abort", "plain", "fatal"])
def test_nothing_is_written_before_a_commit_is_asked_for(
    made: tuple[FencedWriter, Scripted], at: str, why: Fault
) -> None:
    writer, script = made
    script.scripts[at] = [why]
    outcome = write(writer)
    assert isinstance(outcome, NothingWritten)
    assert "commit" not in script.calls
    assert outcome.is_spent == (why is FATAL)
    assert ("abort" in script.calls) == (why is not FATAL)


def test_a_commit_that_must_be_aborted_is_not_made(made: tuple[FencedWriter, Scripted]) -> None:
    writer, script = made
    script.scripts["commit"] = [AGAIN, MUST_ABORT]
    outcome = write(writer)
    assert isinstance(outcome, NothingWritten) and not outcome.is_spent
    assert script.calls[-3:] == ["commit", "commit", "abort"]


@pytest.mark.parametrize("why", [PLAIN, FATAL], ids=["plain", "fatal"])
def test_any_other_error_of_a_commit_leaves_it_unknown(
    made: tuple[FencedWriter, Scripted], why: Fault
) -> None:
    writer, script = made
    script.scripts["commit"] = [why]
    outcome = write(writer)
    assert isinstance(outcome, Unknown) and outcome.is_spent
    assert "abort" not in script.calls, "an abort could end what is committed"


def test_a_commit_without_an_answer_is_unknown(made: tuple[FencedWriter, Scripted]) -> None:
    writer, script = made
    writer.patience = Patience(call_s=1, commit_s=-1, other_s=60)
    script.scripts["commit"] = [AGAIN]
    assert isinstance(write(writer), Unknown)


def test_an_abort_that_fails_uses_the_writer_up(made: tuple[FencedWriter, Scripted]) -> None:
    writer, script = made
    script.scripts |= {"send": [MUST_ABORT], "abort": [AGAIN, PLAIN]}
    outcome = write(writer)
    assert isinstance(outcome, NothingWritten) and outcome.is_spent
    assert "; then because" in outcome.why


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordsRefused),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NothingWritten),
        (KafkaError._PURGE_QUEUE, NothingWritten),
    ],
)
def test_a_refused_record_is_named(
    made: tuple[FencedWriter, Scripted], code: int, kind: type[NothingWritten]
) -> None:
    writer, script = made
    record: RawRecord = ARecord()  # type: ignore[assignment]  # the fields that are read
    script.scripts["commit"] = [MUST_ABORT]
    outcome = writer.write(lambda calls: script.refused(fault(code), record), MARK)
    assert type(outcome) is kind
    assert isinstance(outcome, NothingWritten)
    told = [(each.topic, each.partition, each.key, each.value) for each in outcome.refusals]
    assert told == ([] if code == KafkaError._PURGE_QUEUE else [("orders", 3, b"k", b"v")])
    script.scripts["commit"] = [MUST_ABORT]
    later = write(writer)
    assert type(later) is NothingWritten and not later.refusals, "those of the one before"


@pytest.mark.parametrize("during", ["before", "records"])
def test_a_writer_that_saw_its_cluster_fail_commits_nothing_more(
    made: tuple[FencedWriter, Scripted], during: str
) -> None:
    """Its next marker could end a transaction that lost one (`hanging.py`)."""
    writer, script = made
    if during == "before":
        script.failed(SILENT)
    outcome = writer.write(lambda calls: script.failed(SILENT), MARK)
    assert isinstance(outcome, NothingWritten) and outcome.is_spent
    assert "the cluster failed" in outcome.why
    assert not {"commit", "abort"} & set(script.calls)


def test_an_opening_goes_on_until_it_is_stopped(made: tuple[FencedWriter, Scripted]) -> None:
    writer, script = made
    script.scripts["take_over"] = [AGAIN, AGAIN]
    assert writer.open(lambda: 5) == 5
    assert script.calls == ["take_over"] * 4
    script.scripts["take_over"] = [AGAIN]
    with pytest.raises(Fault):
        writer.open(lambda: 5, stopping=lambda: True)
    script.scripts["take_over"] = [FATAL]
    with pytest.raises(Fault):
        writer.open(lambda: 5)


def test_a_spent_writer_is_not_used_again(made: tuple[FencedWriter, Scripted]) -> None:
    writer, script = made
    script.scripts["commit"] = [MUST_ABORT]
    assert isinstance(write(writer), NothingWritten)
    script.scripts["commit"] = [FATAL]
    assert isinstance(write(writer), Unknown), "an aborted transaction leaves the writer usable"
    with pytest.raises(AssertionError, match="spent"):
        write(writer)
