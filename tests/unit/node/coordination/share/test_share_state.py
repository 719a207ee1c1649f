"""The share coordinator's machine on a log in memory: epochs, snapshots, and what a start finds."""

from itertools import pairwise

import pytest

from headrace.environment import Now
from headrace.node.coordination.shard import Shard
from headrace.node.coordination.share.state_batches import KeptBatch, lay_over
from headrace.node.coordination.share.state_key import SharePartitionKey, is_valid_text
from headrace.node.coordination.share.state_machine import NOT_KNOWN, ShareStateMachine
from headrace.node.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import initialize_share_group_state as initialize
from headrace.wire.protocol.messages import write_share_group_state as write
from tests.unit.node.coordination.a_journal import MemoryJournal

NOW = Now(0, 1_700_000_000_000)
ORDERS = bytes(15) + b"\x07"
KEY = SharePartitionKey("workers", ORDERS, 0)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
UPDATES_PER_SNAPSHOT = 3
PARTITION = PartitionImage((1,), (1,), 1, 0, 0, (bytes(16),))
TOPIC = TopicImage("orders", ORDERS, (PARTITION, PARTITION))
IMAGE = MetadataImage("cluster", topics={"orders": TOPIC}, topics_by_id={ORDERS: TOPIC})


class Coordinator:
    """A shard of `__share_group_state`, and a start of another one on the same log."""

    def __init__(self, journal=None, image=None):
        self.journal = journal or MemoryJournal()
        self.image = image or IMAGE
        self.shard = Shard(
            self.journal,
            lambda _: ShareStateMachine(lambda: UPDATES_PER_SNAPSHOT, lambda: self.image),
        )
        self.shard.load(NOW)

    def again(self):
        return Coordinator(self.journal, self.image)

    def run(self, decide, *arguments):
        return self.shard.run(NOW, decide, *arguments)

    def initialize(self, state_epoch=1, start=NOT_KNOWN, key=KEY):
        data = initialize.PartitionData(key.partition, state_epoch, start)
        return self.run(ShareStateMachine.initialize, key, data, NOW, self.journal.end_offset)

    def read(self, leader_epoch, key=KEY):
        return self.run(ShareStateMachine.read, key, leader_epoch, NOW, self.journal.end_offset)

    def write(self, *batches, start=NOT_KNOWN, state_epoch=1, leader_epoch=5, done=0, key=KEY):
        data = write.PartitionData(
            key.partition, state_epoch, leader_epoch, start, done,
            [write.StateBatch(*batch) for batch in batches],
        )  # fmt: skip
        return self.run(ShareStateMachine.write, key, data, NOW, self.journal.end_offset)

    def batches(self, key=KEY):
        return self.read(NOT_KNOWN, key).state_batches and [
            (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in self.read(NOT_KNOWN, key).state_batches
        ]


def test_a_start_finds_all_that_was_written_since_the_state_was_initialized():
    coordinator = Coordinator()
    assert coordinator.initialize().error_code == 0
    assert coordinator.read(5).start_offset == NOT_KNOWN  # its leader resolves it
    coordinator.write((10, 14, ACKNOWLEDGED, 1), start=10)
    coordinator.write((20, 24, AVAILABLE, 2))
    for state in (coordinator, coordinator.again()):
        found = state.read(5)
        assert (found.start_offset, found.state_epoch) == (10, 1)
        assert state.batches() == [(10, 14, ACKNOWLEDGED, 1), (20, 24, AVAILABLE, 2)]


def test_a_snapshot_holds_what_the_updates_before_it_added_up_to():
    coordinator = Coordinator()
    coordinator.initialize(start=0)
    for first in range(0, 50, 10):
        coordinator.write((first, first + 9, ACKNOWLEDGED, 1), start=0)
    keys = [key[:2] for key, _ in coordinator.journal.records()]
    snapshot, update = b"\0\0", b"\0\1"
    assert keys == [snapshot, update, update, update, snapshot, update]
    assert coordinator.again().batches() == [(0, 49, ACKNOWLEDGED, 1)]


def test_a_leader_of_before_may_not_read_or_write():
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.read(5)
    coordinator.read(6)
    for state in (coordinator, coordinator.again()):
        assert state.write(leader_epoch=5).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert state.read(5).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert state.write(leader_epoch=6).error_code == 0


def test_writes_of_before_a_reset_are_refused():
    coordinator = Coordinator()
    coordinator.initialize(state_epoch=1)
    coordinator.write((0, 9, ARCHIVED, 5), start=0)
    coordinator.initialize(state_epoch=2, start=100)
    assert coordinator.write(state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert coordinator.initialize(state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    again = coordinator.again()
    assert again.read(5).start_offset == 100 and not again.batches()


def test_what_was_never_initialized_or_is_deleted_cannot_be_written():
    coordinator = Coordinator()
    assert coordinator.write().error_code == ErrorCode.INVALID_REQUEST
    assert coordinator.read(1).error_code == ErrorCode.INVALID_REQUEST
    coordinator.initialize()
    assert coordinator.run(ShareStateMachine.delete, KEY).error_code == 0
    assert coordinator.run(ShareStateMachine.delete, KEY).error_code == 0  # again is no error
    assert coordinator.again().write().error_code == ErrorCode.INVALID_REQUEST
    summary = coordinator.run(ShareStateMachine.summary, KEY)
    assert (summary.error_code, summary.start_offset) == (0, NOT_KNOWN)


@pytest.mark.parametrize("key", [KEY._replace(partition=2), KEY._replace(topic_id=bytes(16))])
def test_partitions_that_do_not_exist_are_refused(key):
    found = Coordinator().initialize(key=key)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_state_of_a_deleted_topic_goes_also_if_it_was_deleted_meanwhile():
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.image = MetadataImage("cluster")
    later = coordinator.again()
    later.run(ShareStateMachine.forget_unknown_topics)
    assert not later.shard.machine.states and not later.again().shard.machine.states


def test_records_before_the_last_snapshots_can_go():
    coordinator = Coordinator()
    quiet = KEY._replace(partition=1)
    coordinator.initialize(key=quiet)
    coordinator.initialize()
    for first in range(0, 80, 10):
        coordinator.write((first, first + 9, ACKNOWLEDGED, 1), start=first)
    machine = coordinator.shard.machine
    assert isinstance(machine, ShareStateMachine)
    assert machine.prunable_to == 0  # the quiet partition's snapshot is the first record
    end = coordinator.journal.end_offset
    left = coordinator.run(ShareStateMachine.refresh, end - 3, NOW, end)
    assert left == 0 and machine.prunable_to == 9
    kept = [batch for batch in coordinator.journal.batches][machine.prunable_to :]
    coordinator.journal.start_offset, coordinator.journal.batches = machine.prunable_to, kept
    later = coordinator.again()
    assert later.batches() == [(70, 79, ACKNOWLEDGED, 1)]
    assert later.read(NOT_KNOWN, quiet).error_code == 0


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((5, 14, 2, 1), [(0, 4, 0, 1), (5, 14, 2, 1), (15, 19, 0, 1)]),  # later state
        ((5, 14, 0, 0), [(0, 19, 0, 1)]),  # fewer deliveries: an older write
        ((10, 29, 0, 1), [(0, 29, 0, 1)]),  # goes on
        ((20, 29, 2, 1), [(0, 19, 0, 1), (20, 29, 2, 1)]),
        ((0, 19, 4, 5), [(0, 19, 4, 5)]),
        ((30, 39, 0, 1), [(0, 19, 0, 1), (30, 39, 0, 1)]),
    ],
)
def test_batches_are_laid_over_each_other(new, expected):
    kept = [KeptBatch(0, 19, 0, 1)]
    lay_over(kept, [KeptBatch(*new)], -1)
    assert kept == expected


def test_batches_equal_a_plain_model_record_by_record():
    kept, model = [], {}
    for number in range(300):
        first = (number * 37) % 90
        batch = KeptBatch(first, first + number % 13, (0, 2, 4)[number % 3], 1 + (number * 7) % 4)
        start = number // 10
        lay_over(kept, [batch], start)
        for offset in range(batch.first, batch.last + 1):
            if model.get(offset, (0, -1)) <= batch.rank:
                model[offset] = batch.rank
        model = {offset: rank for offset, rank in model.items() if offset >= start}
        found = {offset: one.rank for one in kept for offset in range(one.first, one.last + 1)}
        assert found == model
        assert all(a.last < b.first for a, b in pairwise(kept))
        assert not any(a.last + 1 == b.first and a.rank == b.rank for a, b in pairwise(kept))


def test_the_key_of_a_share_partition_as_text():
    assert is_valid_text(KEY.text) and is_valid_text(f"a:b{KEY.text}")
    for text in ("", "a", "a:b:1", f"{KEY.text}x", ":".join(["", *KEY.text.split(":")[1:]])):
        assert not is_valid_text(text)
