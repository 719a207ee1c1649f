"""What lies in the brokers' logs before their last start, for the stories that are told after it.

One stop and one start of each broker serve them all, so they are told last. Most of it is written
as records (`seeds.py`), some by requests. From that start on the brokers look often for what is too
old; how old that is stays as it is: what is to go was written with times of long ago.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from headrace.node.coordination.group import records
from headrace.node.coordination.records import Record
from headrace.node.coordination.transaction.states import TransactionState
from headrace.wire.protocol.java_hash import partition_for_group
from headrace.wire.protocol.messages import describe_transactions
from headrace.wire.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from headrace.wire.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from headrace.wire.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from headrace.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.protocol.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.conformance.batches import R, build
from tests.conformance.seeds import PARTITIONS, Seeds, now_ms
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_members import stable
from tests.conformance.stories.group_migration import subscription
from tests.conformance.stories.group_offsets import with_coordinator as with_groups
from tests.conformance.stories.transactions import (
    ADDS,
    BUMPS,
    Producer,
    is_complete,
    ready,
    with_coordinator,
)

LOOK_OFTEN = {
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "producer.id.expiration.check.interval.ms": "200",
    "offsets.retention.check.interval.ms": "200",
}
LONG_AGO_MS = 8 * 24 * 3_600_000  # a day longer than ids and offsets are kept
LAST_FOR_CLIENTS = 32_766
ABORTS_AFTER_MS = 2_000
CLIENTS = (1, 2)  # transaction.version as the client speaks it
QUESTIONS = ("goes on", "ends", "comes again")

# Transactional ids whose epochs are used up, and their producers.
WORN = {
    name: 7_000_000 + number
    for number, name in enumerate(
        [
            "worn-ends",
            "worn-prepares-commit",
            "worn-prepares-abort",
            "worn-prepares-fence",
            *(f"worn-init-{version}" for version in range(6)),
            *(f"worn-own-{version}" for version in range(3, 6)),
            *(f"worn-offsets-{version}" for version in range(6)),
            *(
                f"worn-{how}-{client}-{asks}"
                for how in ("open", "late", "first-version")
                for client in CLIENTS
                for asks in QUESTIONS
            ),
        ]
    )
}
NEXT_IDS = 7_100_000  # of those whose decision names the producer that comes after
# What is asked right after the start: a group or a transactional id for each question, all groups
# in the partition that takes longest to load, behind everything else in it.
ASKED_OF_GROUPS = ("look", "commit", "join", "sync", "beat", "leave", "forget", "delete",
                   "join 848", "txn commit")  # fmt: skip
ASKED_OF_IDS = ("look", "init", "add", "add offsets", "commit", "end", "record")
CROWDED_ID = 7_200_000
CROWD = 1_000  # places
TURNS = 100  # commits of each

_with_past: set[Path] = set()
# Producers that wrote before the start: id and epoch, by folder of the node and transactional id.
_producers: dict[tuple[Path, str], tuple[int, int]] = {}
_old_batch = build(
    R(b"1"),
    R(b"2"),
    producer_id=900,
    producer_epoch=1,
    base_sequence=0,
    base_timestamp=now_ms(),
)


def old_batch() -> bytes:
    """What was sent to the topic `restarted`."""
    return _old_batch


def with_past(stage: Stage) -> None:
    node = stage.node
    if node.folder in _with_past:
        return
    with_groups(stage, "g")
    with_coordinator(stage, "t")
    seeds = Seeds(stage)
    restarted(stage)
    worn_out(stage, seeds)
    idle(stage, seeds)
    forgotten(stage, seeds)
    crowded(stage, seeds)
    seeds.write()
    stage.drop()
    node.stop()
    node.settings |= LOOK_OFTEN
    node.start()
    _with_past.add(node.folder)


def who(stage: Stage, name: str) -> Producer:
    """The producer that had this transactional id before the start."""
    worn = WORN.get(name)
    found = _producers[stage.node.folder, name] if worn is None else (worn, LAST_FOR_CLIENTS)
    producer = Producer(stage, name, 60_000, *found)
    producer.seen.append(producer.id)
    return producer


def is_known(stage: Stage, name: str) -> bool:
    """Whether the coordinator knows the id; not while it loads."""
    answer: Any = stage.connection.ask(
        describe_transactions, 0, DescribeTransactionsRequest([name])
    )
    return bool(answer.transaction_states[0].error_code == 0)


# --- what was


def restarted(stage: Stage) -> None:
    topic = stage.topic("restarted", config={"flush.ms": "123456"})
    stage.produce(topic, old_batch())


def worn_out(stage: Stage, seeds: Seeds) -> None:
    topic = stage.topic("worn", partitions=2)
    for name, producer_id in WORN.items():
        timeout_ms = ABORTS_AFTER_MS if name.startswith("worn-late") else 60_000
        seeds.transaction(name, producer_id, LAST_FOR_CLIENTS, timeout_ms=timeout_ms)
    # Decided, and then the broker was killed.
    for number, (name, state) in enumerate(
        {
            "worn-prepares-commit": TransactionState.PREPARE_COMMIT,
            "worn-prepares-abort": TransactionState.PREPARE_ABORT,
        }.items()
    ):
        seeds.transaction(
            name,
            WORN[name],
            LAST_FOR_CLIENTS + 1,
            state=state,
            partitions=[(topic.name, 0)],
            next_id=NEXT_IDS + number,
        )
    name = "worn-prepares-fence"
    fenced = TransactionState.PREPARE_ABORT
    seeds.transaction(name, WORN[name], LAST_FOR_CLIENTS + 1, state=fenced)


def idle(stage: Stage, seeds: Seeds) -> None:
    """Transactional ids that nobody has used for long."""
    topic = stage.topic("idle")
    for client in CLIENTS:
        producer = ready(stage, f"idle-{client}")
        if client == 1:
            producer.add(None, 3, (topic.name, [0]))
        producer.send(None, 10 if client == 1 else ADDS, topic, 0)
        producer.end(None, 4 if client == 1 else BUMPS, commit=True)
        stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]
        found = producer.id, producer.epoch
        _producers[stage.node.folder, producer.transactional_id] = found
        committed = TransactionState.COMPLETE_COMMIT
        seeds.transaction(producer.transactional_id, *found, state=committed, age_ms=LONG_AGO_MS)
    states = {
        "empty": TransactionState.EMPTY,
        "aborted": TransactionState.COMPLETE_ABORT,
        "ongoing": TransactionState.ONGOING,
    }
    for number, (word, state) in enumerate(states.items()):
        seeds.transaction(
            f"idle-{word}",
            7_300_000 + number,
            5,
            state=state,
            partitions=[(topic.name, 0)] if state is TransactionState.ONGOING else (),
            age_ms=LONG_AGO_MS,
        )


# Groups by what they have besides offsets.
FORGETTING = ("simple", "empty", "emptied", "timeless", "members", "pending", "consumer", "gone",
              "gone-empty", "gone-consumer", "nothing", "nothing-consumer")  # fmt: skip
# A partition of the topic that nobody reads: its offset says itself when it goes. When it has gone,
# the broker has looked at its group.
LOOKED = 1


def forgotten(stage: Stage, seeds: Seeds) -> None:
    """Offsets of partition 0 are of long ago, of partition 1 of now (unless everything is to go),
    of partition 2 of long ago but to be kept by their own word, of partition 3 to go by theirs."""
    topic = stage.topic("forgotten", partitions=4)
    other = stage.topic("forgotten-unread", partitions=2)
    reads = subscription(topic.name)
    stable(stage, "forget-members", range=reads, session_ms=300_000)
    pending = ready(stage, "forget-pending", timeout_ms=900_000)
    pending.offsets(None, 5, topic.name, group="forget-pending")
    _producers[stage.node.folder, "forget-pending"] = pending.id, pending.epoch
    for kind in FORGETTING:
        group = f"forget-{kind}"
        seeds.group(group, *kept_of(group, kind))
        if kind.startswith("nothing"):
            continue
        seeds.offset(group, topic, 10, age_ms=LONG_AGO_MS)
        expiring(seeds, group, topic, 3, in_ms=-1_000)
        expiring(seeds, group, other, LOOKED, in_ms=-1_000)
        if not kind.startswith("gone"):
            seeds.offset(group, topic, 11, partition=1)
            expiring(seeds, group, topic, 2, in_ms=3_600_000)
            seeds.offset(group, other, 12, age_ms=LONG_AGO_MS)


def kept_of(group: str, kind: str) -> list[Record]:
    if kind.endswith("consumer"):
        target = ConsumerGroupTargetAssignmentMetadataKey(group)
        return [
            Record(ConsumerGroupMetadataKey(group), ConsumerGroupMetadataValue(3)),
            Record(target, ConsumerGroupTargetAssignmentMetadataValue(3)),
        ]
    since_ms = {
        "empty": now_ms() - LONG_AGO_MS,
        "gone-empty": now_ms() - LONG_AGO_MS,
        "emptied": now_ms(),
        "nothing": now_ms(),
        "timeless": -1,
    }.get(kind)
    if since_ms is None:
        return []
    value = GroupMetadataValue("consumer", 4, None, None, since_ms)
    return [records.group_metadata(group, value)]


def expiring(seeds: Seeds, group: str, topic: Topic, partition: int, *, in_ms: int) -> None:
    now = now_ms()
    value = OffsetCommitValue(13, -1, "", now - LONG_AGO_MS if in_ms > 0 else now, now + in_ms)
    seeds.group(group, records.committed_offset(group, topic.name, partition, value))


def crowded_group(what: str) -> str:
    """A name that lies in the same partition as all the others."""
    place = partition_for_group("crowded", PARTITIONS)
    names = (f"crowded {what} {number}" for number in count())
    return next(name for name in names if partition_for_group(name, PARTITIONS) == place)


def crowded(stage: Stage, seeds: Seeds) -> None:
    topic = stage.topic("crowded")
    now = now_ms()
    for turn in range(TURNS):
        values = [OffsetCommitValue(turn, -1, "", now, -1, topic.id)] * CROWD
        seeds.group(
            "crowded",
            *(
                records.committed_offset("crowded", topic.name, index, value)
                for index, value in enumerate(values)
            ),
        )
    for what in ASKED_OF_GROUPS:
        seeds.offset(crowded_group(what), topic, 42)
    for number, what in enumerate(ASKED_OF_IDS):
        seeds.transaction(f"crowded {what}", CROWDED_ID + number, 0)
