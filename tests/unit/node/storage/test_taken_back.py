"""Batches that the disk refused are forgotten without a look at the file, and what is left is what
a look at the file would find."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from tests.effort import examples
from tests.unit.node.storage.a_log import NOW, ALog, FullDisk, batch


class Refusals(ALog):
    """A log on a disk that is full now and then."""

    def __init__(self, folder, **how):
        self.disk = FullDisk()
        super().__init__(folder, self.disk, **how)

    def refused_turn(self):
        self.disk.is_full = True
        with pytest.raises(KafkaError) as refusal:
            self.end_turn()
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        self.disk.is_full = False
        self.turn_is_over()


def known(log):
    """Everything that the log knows of itself."""
    active, producers = log.log.active, log.log.producers
    return {
        "ends": (log.log.end_offset, active.size, list(log.log.segments.bases)),
        "youngest": (active.max_timestamp, active.offset_of_max_timestamp, active.ages_from),
        "index": (
            active.index.all_entries(),
            active.index.last_offset,
            active.size - active.last_entry_at,
        ),
        "times": [log.log.offset_for_time(NOW + 7 * number) for number in range(-1, 20)],
        "aborted": list(active.transaction_index.entries()),
        "epochs": list(log.log.epochs.entries),
        "open": dict(producers.open_transactions),
        "producers": {
            producer_id: (
                producer.epoch,
                producer.next_sequence,
                producer.last_sequence,
                producer.last_offset,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
            for producer_id, producer in sorted(producers.producers.items())
            # A producer whose first batch was refused is known by that alone, in no file.
            if producer.batches or producer.coordinator_epoch >= 0
        },
    }


class Sender:
    def __init__(self, log, number):
        self.log, self.id, self.epoch, self.next = log, number, 0, 0

    def send(self, timestamp, *, transactional=False, size=1, sequence=None):
        data = batch(
            b"x" * size,
            timestamp=timestamp,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.next if sequence is None else sequence,
            is_transactional=transactional,
        )
        offset = self.log.append(data)[0]
        self.next += sequence is None
        return offset

    def end(self, timestamp, *, commit):
        self.log.log.writer.append_marker(
            commit=commit,
            producer_id=self.id,
            producer_epoch=self.epoch,
            coordinator_epoch=1,
            leader_epoch=0,
            wall_ms=timestamp,
        )


STEPS = st.one_of(
    st.tuples(st.just("plain"), st.integers(-5, 5), st.sampled_from([1, 300, 2_500])),
    st.tuples(st.just("send"), st.integers(0, 2), st.integers(-5, 5)),
    st.tuples(st.just("txn"), st.integers(3, 5), st.integers(-5, 5)),
    st.tuples(st.just("end"), st.integers(3, 5), st.booleans()),
    st.tuples(st.just("epoch"), st.integers(0, 2), st.just(0)),
)
TURNS = st.lists(st.tuples(st.lists(STEPS, min_size=1, max_size=8), st.booleans()), max_size=12)


@settings(max_examples=examples(60), deadline=None)
@given(turns=TURNS)
def test_what_is_left_is_what_the_file_holds(tmp_path_factory, turns):
    log = Refusals(tmp_path_factory.mktemp("log"), index_interval_bytes=400, segment_bytes=20_000)
    senders = [Sender(log, number) for number in range(6)]
    time_ms = NOW
    for steps, refused in turns:
        before = [(sender.epoch, sender.next) for sender in senders]
        for kind, which, detail in steps:
            time_ms += 3
            if kind == "plain":
                log.append_values(b"p" * detail, timestamp=time_ms + which)
            elif kind == "end":
                senders[which].end(time_ms, commit=detail)
            elif kind == "epoch":
                senders[which].epoch, senders[which].next = senders[which].epoch + 1, 0
            else:
                senders[which].send(time_ms + detail, transactional=kind == "txn")
        if refused and log.log.active.pending:
            log.refused_turn()
            now = known(log)
            log.log.reload()
            assert now == known(log)
            for sender in senders:  # they send again what is not there
                found = log.log.producers.producers.get(sender.id)
                sender.next = found.next_sequence if found else 0
                sender.epoch = found.epoch if found else before[sender.id][0]
        else:
            log.end_turn()
    end = known(log)
    log.kill()
    assert end == known(log)


def test_what_was_known_before_is_known_and_goes_on_without_a_look_at_the_file(
    tmp_path, monkeypatch
):
    log = Refusals(tmp_path)
    plain, open_since_before = Sender(log, 1), Sender(log, 2)
    for number in range(4):
        plain.send(NOW + number)
        open_since_before.send(NOW + number, transactional=True)
    log.end_turn()
    monkeypatch.setattr(PartitionLog, "reload", None)
    for number in range(3):
        plain.send(NOW + 10 + number)
        open_since_before.send(NOW + 10, transactional=True)
    log.append_values(b"nobody's")
    log.refused_turn()
    assert log.log.end_offset == 8
    assert plain.send(NOW, sequence=3) == 6  # the last that was written: a duplicate
    assert plain.send(NOW, sequence=2) == 4  # the client has five on their way, three were lost
    plain.next = open_since_before.next = 4
    assert plain.send(NOW + 20) == 8  # not a duplicate of what was lost
    assert open_since_before.send(NOW + 20, transactional=True) == 9
    log.end_turn()
    assert [offset for offset, _ in log.values()] == list(range(10))
    assert log.log.producers.open_transactions == {1: 2}


@pytest.mark.parametrize("lost", ["first batch", "new epoch", "marker", "after a marker"])
def test_what_is_not_known_any_more_is_looked_for_in_the_file(tmp_path, lost):
    log = Refusals(tmp_path)
    old = Sender(log, 1)
    old.send(NOW, transactional=True)
    if lost == "after a marker":
        old.end(NOW + 7, commit=True)
    log.end_turn()
    before = known(log)
    if lost == "first batch":
        Sender(log, 9).send(NOW + 1)
    elif lost == "new epoch":
        old.epoch, old.next = 1, 0
        old.send(NOW + 1, transactional=True)
    elif lost == "marker":
        old.end(NOW + 1, commit=False)
    else:
        old.send(NOW + 1, transactional=True)
    log.refused_turn()
    assert known(log) == before
