"""What fuzzing has found, by name, and a walk with flipped bits through every captured frame.

The fuzzer itself is guided by coverage and runs for minutes (`make fuzz`); here the same target
gets what real clients have sent, whole and damaged, the same in each run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    add_partitions_to_txn,
    create_topics,
    find_coordinator,
    list_offsets,
    offset_commit,
)
from tests.effort import IS_FULL, examples
from tests.fuzz.inventing import invented_input
from tests.fuzz.seeded import damaged
from tests.fuzz.seeds import captured, seeds
from tests.fuzz.target import Target
from tests.sockets.attacks import batch_around
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import START_MS, Rig

SEED = 8
DAMAGED_PER_SEED = 8
INVENTED = 1_500


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    made = Target()
    yield made
    made.close()


def test_what_real_clients_send_is_answered(target: Target) -> None:
    before = target.answered
    frames = captured()
    for frame in frames:
        target.run(b"\x02" + frame)
    assert target.answered - before > 0.8 * len(frames)


def test_damaged_requests_are_refused_or_answered(target: Target) -> None:
    chance = random.Random(SEED)
    before = target.refused, target.answered
    per_seed = DAMAGED_PER_SEED if IS_FULL else 2
    all_seeds = list(seeds(target.routes()))
    for seed in all_seeds:
        for _ in range(per_seed):
            target.run(damaged(seed, chance))
    tried = per_seed * len(all_seeds)
    assert target.refused - before[0] > tried / 5 and target.answered - before[1] > tried / 5


def test_requests_that_nobody_has_sent_are_refused_or_answered(target: Target) -> None:
    before = target.answered
    for seed in range(examples(INVENTED)):
        target.run(invented_input(target.routes(), seed, 1 << 16))
    assert target.answered - before > examples(INVENTED) / 3


# ---- what was found ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 4])
def test_an_offset_may_be_kept_for_longer_than_time_lasts(tmp_path: Path, version: int) -> None:
    """A retention of 2^63 milliseconds made a moment that the record of an offset cannot say."""
    rig = Rig(tmp_path / "data", offsets_topic_num_partitions=1)
    rig.create("orders")
    rig.ask(find_coordinator, find_coordinator.FindCoordinatorRequest("readers", 0), version=2)
    part = offset_commit.OffsetCommitRequestPartition(0, committed_offset=7)
    topic = offset_commit.OffsetCommitRequestTopic("orders", partitions=[part])
    request = offset_commit.OffsetCommitRequest("readers", topics=[topic])
    request.retention_time_ms = 2**63 - 1
    answer = rig.ask(offset_commit, request, version=version)
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", [2, 7])
def test_a_refusal_may_speak_of_a_name_as_long_as_names_can_be(
    tmp_path: Path, version: int
) -> None:
    """The sentence around the name made it longer than a text in an answer can be."""
    rig = Rig(tmp_path / "data")
    topic = create_topics.CreatableTopic("x" * 0x7FFF, 1, 1)
    request = create_topics.CreateTopicsRequest([topic], 1_000)
    [result] = rig.ask(create_topics, request, version=version).topics
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(result.error_message) < 3_000


def test_a_request_may_speak_of_thousands_of_transactions(tmp_path: Path) -> None:
    """Each was decided inside the one before, until Python had enough of it."""
    rig = Rig(tmp_path / "data", transaction_state_log_num_partitions=1)
    rig.ask(find_coordinator, find_coordinator.FindCoordinatorRequest("t", 1), version=2)
    one = add_partitions_to_txn.AddPartitionsToTxnTransaction("t", 5, 0, True, [])
    request = add_partitions_to_txn.AddPartitionsToTxnRequest([one] * 5_000)
    answer = rig.ask(add_partitions_to_txn, request, version=4)
    assert len(answer.results_by_transaction) == 5_000


def stored_by_an_older_version(rig: Rig, topic: str, batch: bytes) -> None:
    """A client's batch like this is refused today; logs may hold some from before."""
    leader = rig.node.broker.topics.by_name[topic].replicas[0]
    log = leader.log
    placed = bytearray(batch)
    placed[:8] = log.end_offset.to_bytes(8, "big")
    log.writer.append_as_is(memoryview(placed), wall_ms=START_MS)
    log.write_at_once()
    leader.high_watermark = log.end_offset


def test_a_search_by_time_meets_a_batch_that_cannot_be_read(tmp_path: Path) -> None:
    """Who may write could end the connection of everybody who looked for a time."""
    rig = Rig(tmp_path / "data")
    rig.create("orders")
    claim = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x03\x00\x00\x61"
    stored_by_an_older_version(rig, "orders", batch_around(4, claim, START_MS))
    part = list_offsets.ListOffsetsPartition(0, -1, START_MS - 1)
    topic = list_offsets.ListOffsetsTopic("orders", [part])
    answer = rig.ask(list_offsets, list_offsets.ListOffsetsRequest(-1, 0, [topic]))
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.offset) == (0, 0), "its first offset: nothing is skipped"


def test_a_coordinator_passes_over_a_batch_that_cannot_be_read(tmp_path: Path) -> None:
    """Its key is there, which is all that a compacted topic asks for; its value is not."""
    rig = GroupRig(tmp_path / "data", offsets_topic_num_partitions=1)
    rig.create("orders")
    rig.find("readers")
    assert rig.commit("readers", "orders", 7) == 0
    record = b"\x10\0\0\0\x02k\xc8\x01\0"  # a value of 100 bytes is announced
    batch = batch_around(0, record, START_MS)
    stored_by_an_older_version(rig, "__consumer_offsets", batch)
    assert rig.commit("readers", "orders", 8) == 0
    assert rig.committed("readers", "orders") == 8
    again = GroupRig(tmp_path / "data", offsets_topic_num_partitions=1)
    assert again.committed("readers", "orders") == 8
