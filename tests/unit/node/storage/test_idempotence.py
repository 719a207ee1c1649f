"""Producers that number their batches: Apache Kafka's rules, through the log."""

import pytest

from headrace.node.storage.producer_state import MAX_SEQUENCE
from headrace.wire.protocol.control_records import end_txn_batch
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from tests.unit.node.storage.a_log import NOW, ALog, batch


class Producer:
    """Sends batches with its own numbers."""

    def __init__(self, log, producer_id=9, epoch=0):
        self.log = log
        self.id = producer_id
        self.epoch = epoch

    def send(self, sequence, count=1, timestamp=NOW, **how):
        values = [b"%d" % (sequence + n) for n in range(count)]
        data = batch(
            *values,
            timestamp=timestamp,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            **how,
        )
        return self.log.append(data)[0]

    def refused(self, sequence, count=1, **how):
        with pytest.raises(KafkaError) as refusal:
            self.send(sequence, count, **how)
        return refusal.value.code


@pytest.fixture
def log(tmp_path):
    return ALog(tmp_path)


def test_sequences_go_on(log):
    producer = Producer(log)
    assert producer.send(0, count=3) == 0
    assert producer.send(3) == 3
    assert producer.refused(5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.refused(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(4) == 4


def test_a_duplicate_of_the_last_five_batches_gets_its_first_answer(log):
    producer = Producer(log)
    for number in range(7):
        producer.send(2 * number, count=2, timestamp=NOW + number)
    for number in range(2, 7):
        data = batch(
            b"", b"", timestamp=NOW, producer_id=9, producer_epoch=0, base_sequence=2 * number
        )
        # As Apache does it: with the timestamp that the batch has in the log.
        assert log.append(data) == (2 * number, NOW + number + 1)
    assert producer.refused(2, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Half of a batch is no duplicate of it.
    assert producer.refused(12) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log.end_offset == 14


def test_an_unknown_producer_may_begin_anywhere(log):
    assert Producer(log).send(1000) == 0


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(log):
    producer = Producer(log)
    producer.send(0)
    producer.epoch = 1
    assert producer.refused(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0) == 1
    producer.epoch = 0
    assert producer.refused(1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_an_old_epoch_are_no_duplicates(log):
    producer = Producer(log)
    for number in range(3):
        producer.send(number)
    producer.epoch = 1
    assert [producer.send(number) for number in range(3)] == [3, 4, 5]
    assert producer.send(1) == 4  # not 1, where the old epoch had it


def test_sequences_wrap(log):
    producer = Producer(log)
    assert producer.send(MAX_SEQUENCE - 1, count=3) == 0  # 2^31-2, 2^31-1, 0
    assert producer.send(MAX_SEQUENCE - 1, count=3) == 0  # the same again
    assert producer.refused(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(1) == 3


def test_a_wrap_between_batches(log):
    producer = Producer(log)
    producer.send(MAX_SEQUENCE)
    assert producer.send(0) == 1
    log.restart()
    producer.log = log
    assert producer.send(0) == 1
    assert producer.send(1) == 2


def test_a_producer_without_a_sequence_is_refused(log):
    assert Producer(log).refused(-1) == ErrorCode.INVALID_RECORD


def test_producers_do_not_mix(log):
    one, two = Producer(log, 1), Producer(log, 2)
    assert [one.send(0), two.send(0), one.send(1), two.send(1)] == [0, 1, 2, 3]
    assert one.send(0) == 0 and two.send(1) == 3


def test_the_last_batch_is_known_after_a_clean_restart(log):
    producer = Producer(log)
    for number in range(7):
        producer.send(number)
    log.restart()
    assert producer.send(6) == 6  # the duplicate
    assert producer.refused(5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # as in Apache Kafka
    assert producer.send(7) == 7


def test_all_five_are_known_after_a_kill(log):
    producer = Producer(log)
    for number in range(7):
        producer.send(number)
    log.kill()
    assert [producer.send(number) for number in range(2, 7)] == [2, 3, 4, 5, 6]
    assert producer.refused(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(7) == 7


def test_a_kill_after_a_roll_begins_with_the_snapshot_of_the_roll(log):
    producer, idle = Producer(log), Producer(log, 10)
    idle.send(0)
    producer.send(0)
    log.log.roll(wall_ms=NOW)
    producer.send(1)
    log.flush(everything=False)
    log.kill(recovery_point=log.log.recovery_point)
    assert [idle.send(0), producer.send(0), producer.send(1)] == [0, 1, 2]
    assert idle.send(1) == 3


def test_a_damaged_snapshot_is_passed_over(log):
    producer = Producer(log)
    producer.send(0)
    log.log.roll(wall_ms=NOW)
    producer.send(1)
    log.log.close()
    path = f"{log.folder}/{2:020d}.snapshot"
    data = bytearray(log.file(2, "snapshot"))
    data[20] ^= 1
    log.open_files.disk.write_file(path, [bytes(data)])
    log.open(clean=True)
    assert producer.send(1) == 1 and producer.send(2) == 2


def test_without_any_snapshot_a_kill_reads_everything(log):
    producer = Producer(log)
    producer.send(0)
    log.log.roll(wall_ms=NOW)
    producer.send(1)
    log.log.let_go()
    for name in log.open_files.disk.list(log.folder):
        if name.endswith(".snapshot"):
            log.open_files.disk.remove(f"{log.folder}/{name}")
    log.open(clean=False, recovery_point=1)
    assert [producer.send(0), producer.send(1)] == [0, 1]


def test_who_has_not_written_for_a_day_is_forgotten(log):
    producer, busy = Producer(log), Producer(log, 10)
    producer.send(0, timestamp=NOW - 86_400_000)
    busy.send(0, timestamp=NOW)
    log.log.producers.remove_expired(NOW, 86_400_000)
    assert list(log.log.producers.producers) == [10]
    assert producer.send(500) == 2


def test_an_expired_producer_does_not_come_back_with_a_restart(log):
    Producer(log).send(0, timestamp=NOW - 86_400_000)
    log.restart()
    assert log.log.producers.producers == {}


def test_truncation_takes_sequences_back(log):
    producer = Producer(log)
    for number in range(6):
        producer.send(number)
    log.log.truncate(3, wall_ms=NOW)
    assert producer.refused(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(3) == 3


def test_open_transactions_are_followed_and_survive(log):
    producer = Producer(log)
    producer.send(0, is_transactional=True)
    producer.send(1, is_transactional=True)
    assert log.log.producers.first_undecided_offset() == 0
    assert producer.refused(2) == ErrorCode.INVALID_TXN_STATE
    log.restart()
    assert log.log.producers.open_transactions == {0: 9}
    log.kill()
    assert log.log.producers.open_transactions == {0: 9}
    # No expiry while a transaction is open.
    log.log.producers.remove_expired(NOW + 10**9, 86_400_000)
    assert log.log.producers.open_transactions == {0: 9}
    marker = end_txn_batch(
        commit=True,
        coordinator_epoch=4,
        producer_id=9,
        producer_epoch=0,
        timestamp=NOW,
        base_offset=2,
        leader_epoch=0,
    )
    log.log.writer.append_as_is(memoryview(marker), wall_ms=NOW)
    assert log.log.producers.first_undecided_offset() is None
    assert log.log.producers.producers[9].coordinator_epoch == 4
    log.kill()
    assert log.log.producers.open_transactions == {}
    assert log.log.producers.producers[9].coordinator_epoch == 4
    assert producer.send(2) == 3
