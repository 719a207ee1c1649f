"""A shard with the smallest machine there is: counters by name, kept in a log."""

from typing import Any

import pytest

from headrace.environment import Now
from headrace.node.coordination import shard as shards
from headrace.node.coordination.records import Record, RecordCodec
from headrace.node.coordination.shard import Decision, Later, Shard
from headrace.wire.protocol import control_records, record_batch
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import transaction_log_key, transaction_log_value
from headrace.wire.protocol.messages.transaction_log_key import TransactionLogKey
from headrace.wire.protocol.messages.transaction_log_value import TransactionLogValue
from tests.unit.node.coordination.a_journal import MemoryJournal

NOW = Now(1_000, 1_700_000_000_000)
CODEC = RecordCodec([(transaction_log_key, transaction_log_value)])


class Counters:
    """The key's id is a name, the value's producer_id a count."""

    codec = CODEC

    def __init__(self, answered):
        self.answered = answered
        self.counts = {}
        self.pending = {}
        self.awaited = {}
        self.next_due_ms = None
        self.replays = 0

    def replay(self, record):
        self.replays += 1
        if record.value is None:
            self.counts.pop(record.key.transactional_id, None)
        else:
            self.counts[record.key.transactional_id] = record.value.producer_id

    def replay_pending(self, producer_id, record):
        self.pending.setdefault(producer_id, []).append(record)

    def end_transaction(self, producer_id, *, committed):
        for record in self.pending.pop(producer_id, ()):
            if committed:
                self.replay(record)

    def loaded(self, now):
        self.next_due_ms = now.monotonic_ms + 100 if self.counts else None

    def abandon(self):
        for later in self.awaited.values():
            later.answer = "gone"
            self.answered.append(later)

    # requests

    def add(self, name, producer=None):
        count = self.counts.get(name, 0) + 1
        return Decision([a_count(name, count)], count, self.answer(name, count), producer)

    def answer(self, name, count):
        def answer():
            later = self.awaited.pop(name, None)
            if later is not None:
                later.answer = count
                self.answered.append(later)

        return answer

    def wait_for(self, name):
        self.awaited[name] = Later("never")
        return Decision(response=self.awaited[name])

    def due(self, now):
        self.next_due_ms = None
        return Decision([Record(TransactionLogKey(name), None) for name in self.counts])


# As the shard asks for it; the codec and the deadlines of the Protocol are not used here.
NEW_COUNTERS: Any = Counters


def a_count(name, count):
    return Record(TransactionLogKey(name), TransactionLogValue(producer_id=count))


def new_shard(journal=None, **settings):
    shard = Shard(journal or MemoryJournal(), NEW_COUNTERS, **settings)
    shard.load(NOW)
    return shard


def test_a_decision_is_appended_replayed_and_answered():
    shard = new_shard()
    assert shard.run(NOW, Counters.add, "a") == 1
    assert shard.run(NOW, Counters.add, "a") == 2
    assert shard.machine.counts == {"a": 2}
    [first, second] = map(record_batch.read_header, shard.journal.batches)
    assert (first.base_offset, second.base_offset) == (0, 1)
    assert first.leader_epoch == 3
    assert first.max_timestamp == NOW.wall_ms


def test_the_state_is_found_again_from_the_log():
    shard = new_shard()
    for name in ("a", "b", "a", "c", "a"):
        shard.run(NOW, Counters.add, name)
    again = new_shard(shard.journal)
    assert again.machine.counts == {"a": 3, "b": 1, "c": 1}
    assert again.machine.replays == 3  # only what a compacted log would have held


@pytest.mark.parametrize("codec", range(5))
def test_compressed_logs_are_written_and_read(codec):
    shard = new_shard(compression=codec)
    shard.run(NOW, Counters.add, "a")
    assert record_batch.read_header(shard.journal.batches[0]).compression == codec
    assert new_shard(shard.journal).machine.counts == {"a": 1}


def test_a_refused_append_leaves_no_trace():
    shard = new_shard()
    waiting = shard.run(NOW, Counters.wait_for, "a")
    shard.journal.refuses = True
    with pytest.raises(KafkaError):
        shard.run(NOW, Counters.add, "a")
    assert shard.machine.counts == {}
    assert waiting.answer is None
    shard.journal.refuses = False
    assert shard.run(NOW, Counters.add, "a") == 1


def test_an_answer_that_waits_is_settled_by_another_request():
    shard = new_shard()
    waiting = shard.run(NOW, Counters.wait_for, "a")
    assert waiting.answer is None
    shard.run(NOW, Counters.add, "a")
    assert shard.answered == [waiting]
    assert waiting.answer == 1
    assert waiting.at_offset == 1


def test_what_time_brings_is_recorded_too():
    shard = new_shard()
    shard.run(NOW, Counters.add, "a")
    again = new_shard(shard.journal)
    again.run_due(Now(1_099, 0))
    assert again.machine.counts == {"a": 1}
    again.run_due(Now(1_100, 0))
    assert again.machine.counts == {}
    assert new_shard(shard.journal).machine.counts == {}


def test_records_of_a_transaction_count_when_its_marker_says_so():
    shard = new_shard()
    shard.run(NOW, Counters.add, "kept", (7, 0))
    shard.run(NOW, Counters.add, "dropped", (8, 0))
    assert record_batch.read_header(shard.journal.batches[0]).is_transactional
    assert shard.machine.counts == {}
    mark(shard.journal, 7, commit=True)
    mark(shard.journal, 8, commit=False)
    shard.run(NOW, Counters.wait_for, "x")  # the next request sees what the log got meanwhile
    assert shard.machine.counts == {"kept": 1}
    assert new_shard(shard.journal).machine.counts == {"kept": 1}


def mark(journal, producer_id, *, commit):
    marker = control_records.end_txn_marker(commit=commit, coordinator_epoch=0, timestamp=1)
    batch = record_batch.build(
        [marker],
        base_offset=journal.end_offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    journal.append(batch, 1)


def test_a_log_that_lost_its_end_is_loaded_anew_and_nobody_waits_for_ever():
    shard = new_shard()
    shard.run(NOW, Counters.add, "a")
    waiting = shard.run(NOW, Counters.wait_for, "b")
    shard.run(NOW, Counters.add, "a")
    shard.journal.batches.pop()
    assert shard.run(NOW, Counters.add, "a") == 2
    assert waiting.answer == "gone"


def test_a_large_decision_goes_into_several_batches(monkeypatch):
    monkeypatch.setattr(shards, "BATCH_BYTES", 100)
    shard = new_shard()
    records = [a_count(f"n{n}", n) for n in range(20)]
    shard.run(NOW, lambda machine: Decision(records, "done"))
    assert len(shard.journal.batches) > 3
    assert len(shard.machine.counts) == 20
    assert new_shard(shard.journal).machine.counts == shard.machine.counts


def test_records_that_cannot_be_read_are_passed_over():
    shard = new_shard()
    shard.run(NOW, Counters.add, "a")
    strange = [
        record_batch.Record(b"\x7f\xffwho knows", b"x", (), 1),
        record_batch.Record(b"\x00\x00\x00", b"\x00\x00", (), 1),
        record_batch.Record(b"", None, (), 1),
        record_batch.Record(None, b"no key", (), 1),
        record_batch.Record(CODEC.encode(a_count("b", 1))[0], b"\x00\x63later format", (), 1),
    ]
    shard.journal.append(record_batch.build(strange, base_offset=1), 1)
    shard.run(NOW, Counters.add, "c")
    assert new_shard(shard.journal).machine.counts == {"a": 1, "c": 1}


def test_refusals_go_through():
    def refuse(machine):
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    with pytest.raises(KafkaError):
        new_shard().run(NOW, refuse)


class HardToRead(MemoryJournal):
    is_broken = False

    def read(self, offset):
        if self.is_broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return super().read(offset)


def test_a_load_that_failed_is_begun_anew_and_deadlines_begin_with_it():
    shard = new_shard(HardToRead())
    for _ in range(2):
        shard.run(NOW, Counters.add, "a")
    shard.journal.batches.pop()
    shard.journal.is_broken = True
    with pytest.raises(KafkaError):
        shard.run(NOW, Counters.add, "a")
    shard.journal.is_broken = False
    assert shard.run(NOW, Counters.add, "a") == 2
    assert shard.machine.next_due_ms == NOW.monotonic_ms + 100


def test_a_batch_with_a_wrong_checksum_is_not_replayed_and_nothing_is_decided(caplog):
    """One bit on the disk made another committed offset of it."""
    shard = new_shard()
    shard.run(NOW, Counters.add, "a")
    shard.run(NOW, Counters.add, "a")
    journal = shard.journal
    good = journal.batches[1]
    journal.batches[1] = good[:-3] + bytes([good[-3] ^ 1]) + good[-2:]
    again: Any = Shard(journal, NEW_COUNTERS)
    for _ in range(2):
        with pytest.raises(KafkaError) as refusal:
            again.load(NOW)
        assert refusal.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        again.run(NOW, Counters.add, "a")
    assert caplog.text.count("offsets 1 to 1 fails its checksum") == 1
    assert again.damage is not None
    journal.skips_damage = True  # an operator gives the damaged batch up, and need not start anew
    assert again.run(NOW, Counters.add, "b") == 1
    assert again.machine.counts == {"a": 1, "b": 1} and again.damage is None
    assert caplog.text.count("goes on without what is damaged") == 1
    journal.batches[1:] = [good]
    restarted: Any = Shard(journal, NEW_COUNTERS)
    restarted.load(NOW)
    assert restarted.machine.counts == {"a": 2}
