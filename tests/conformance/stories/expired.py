"""What is forgotten when its time is over: offsets and groups, transactional ids, producers.

Told to brokers with a past (`past.py`), which look often for what is too old.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from headrace.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.protocol.messages.list_groups import ListGroupsRequest
from headrace.wire.protocol.messages.list_transactions import ListTransactionsRequest
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.configs import BROKER, DELETE, SET
from tests.conformance.stories.group_consumers import beat
from tests.conformance.stories.group_offsets import commit, fetch, place
from tests.conformance.stories.group_refusals import forget_offsets
from tests.conformance.stories.past import FORGETTING, LOOKED, who, with_past
from tests.conformance.stories.producers import gives_ids
from tests.conformance.stories.sequences import Producer as Sender
from tests.conformance.stories.transactions import (
    ADDS,
    BUMPS,
    Producer,
    add_offsets,
    is_complete,
    ready,
)

NO_OFFSET = -1
UNKNOWN_ID = 105


def offsets_and_groups(stage: Stage) -> None:
    with_past(stage)
    topic, unread = stage.learn("forgotten"), stage.learn("forgotten-unread")
    for kind in FORGETTING:
        group = f"forget-{kind}"
        if kind.startswith("nothing"):
            stage.until(lambda group=group: not is_listed(stage, group))  # type: ignore[misc]
        else:
            place_looked_at = (group, unread, LOOKED)
            stage.until(lambda at=place_looked_at: is_gone(stage, *at))  # type: ignore[misc]
        for version in offset_fetch.VERSIONS:
            wanted = fetch(version, group, topic, 0, 1, 2, 3)
            stage.ask(f"{kind}: some v{version}", offset_fetch, version, wanted)
            if version >= 2:
                wanted = fetch(version, group, None)
                stage.ask(f"{kind}: all v{version}", offset_fetch, version, wanted)
        for version in describe_groups.VERSIONS[-2:]:
            request = DescribeGroupsRequest([group])
            stage.ask(f"{kind}: described v{version}", describe_groups, version, request)
        request_848 = ConsumerGroupDescribeRequest([group])
        stage.ask(f"{kind}: described 848", consumer_group_describe, 1, request_848)
        stage.keep(f"{kind}: listed", is_listed(stage, group))
    for kind in ("gone", "gone-empty", "gone-consumer"):
        what_was_a_member(stage, kind, topic)
    pending = who(stage, "forget-pending")
    pending.end("the transaction ends", BUMPS, commit=False)
    stage.until(lambda: is_gone(stage, "forget-pending", topic, 0))
    wanted = fetch(9, "forget-pending", None)
    stage.ask("when the transaction has ended", offset_fetch, 9, wanted)


def what_was_a_member(stage: Stage, kind: str, topic: Topic) -> None:
    """It comes back to a group that is not there any more."""
    group = f"forget-{kind}"
    for version in offset_commit.VERSIONS:
        request = commit(group, topic, place(1), member="m", generation=4)
        stage.ask(f"{kind}: commits v{version}", offset_commit, version, request)
    stage.ask(f"{kind}: beats", heartbeat, 4, HeartbeatRequest(group, 4, "m"))
    stage.ask(f"{kind}: beats 848", consumer_group_heartbeat, 1, beat(group, "m", 3))
    stage.ask(f"{kind}: forgets", offset_delete, 0, forget_offsets(group, topic.name))
    stage.ask(f"{kind}: deletes", delete_groups, 2, DeleteGroupsRequest([group]))


def is_gone(stage: Stage, group: str, topic: Topic, partition: int) -> bool:
    answer: Any = stage.connection.ask(offset_fetch, 9, fetch(9, group, topic, partition))
    found = answer.groups[0]
    if found.error_code:
        return False
    part = found.topics[0].partitions[0]
    return bool(part.error_code == 0 and part.committed_offset == NO_OFFSET)


def is_listed(stage: Stage, group: str) -> bool:
    answer: Any = stage.connection.ask(list_groups, 5, ListGroupsRequest())
    return any(one.group_id == group for one in answer.groups) or answer.error_code != 0


def transactional_ids(stage: Stage) -> None:
    with_past(stage)
    topic = stage.learn("idle")
    for name in ("idle-1", "idle-2", "idle-empty", "idle-aborted"):
        stage.until(lambda name=name: is_forgotten(stage, name))  # type: ignore[misc]
    stage.until(lambda: is_complete(Producer(stage, "idle-ongoing")))
    ids = ["idle-1", "idle-2", "idle-empty", "idle-aborted", "idle-ongoing"]
    described: Any = stage.connection.ask(
        describe_transactions, 0, DescribeTransactionsRequest(ids)
    )
    for one in described.transaction_states:
        one.transaction_start_time_ms = min(one.transaction_start_time_ms, 1)
    stage.keep("described", described)
    listed: Any = stage.connection.ask(list_transactions, 1, ListTransactionsRequest())
    found = [one.transactional_id for one in listed.transaction_states]
    stage.keep("listed", sorted(name for name in found if name.startswith("idle-")))
    stage.until(lambda: gives_ids(stage))
    for name, version in (("idle-1", 10), ("idle-2", ADDS)):
        comes_back(who(stage, name), version, topic)


def is_forgotten(stage: Stage, name: str) -> bool:
    answer: Any = stage.connection.ask(
        describe_transactions, 0, DescribeTransactionsRequest([name])
    )
    return bool(answer.transaction_states[0].error_code == UNKNOWN_ID)


def comes_back(producer: Producer, version: int, topic: Topic) -> None:
    """Everything a producer can ask when its id is forgotten, and how it goes on."""
    before = producer.id, producer.epoch
    name = producer.transactional_id
    for older in range(4):
        producer.add(f"{name} add v{older}", older, (topic.name, [0]))
    for newer in (4, 5):
        for verify in (False, True):
            named = [AddPartitionsToTxnTopic(topic.name, [0])]
            wanted = AddPartitionsToTxnTransaction(name, *before, verify, named)
            line = f"{name} {'ask' if verify else 'add'} v{newer}"
            request = AddPartitionsToTxnRequest([wanted])
            producer.ask(line, add_partitions_to_txn, newer, request)
    for each in add_offsets_to_txn.VERSIONS:
        add_offsets(producer, f"{name} add offsets v{each}", each, "idle")
    for each in txn_offset_commit.VERSIONS:
        producer.offsets(f"{name} offsets v{each}", each, topic.name, group="idle")
    for each in produce.VERSIONS:
        producer.send(f"{name} record v{each}", each, topic, 1 if version < ADDS else 0)
        producer.send(f"{name} old record v{each}", each, topic, 0, producer_epoch=0)
    for each in end_txn.VERSIONS:
        for commits in (True, False):
            word = "commit" if commits else "abort"
            producer.end(f"{name} {word} v{each}", each, commit=commits)
            producer.id, producer.epoch = before
    producer.init(f"{name} init", expected=True)
    for each in init_producer_id.VERSIONS[3:]:
        right, (producer.id, producer.epoch) = (producer.id, producer.epoch), before
        producer.init(f"{name} init again v{each}", each, expected=True)
        producer.id, producer.epoch = right
    if version < ADDS:
        producer.add(None, 3, (topic.name, [0]))
    producer.send(f"{name} new record", version, topic, 0)
    producer.end(f"{name} new commit", 4 if version < ADDS else BUMPS, commit=True)
    producer.stage.until(lambda: is_complete(producer))


def producers_of_a_partition(stage: Stage) -> None:
    """Their records are of long ago, so that they are forgotten as soon as it is looked."""
    with_past(stage)
    topic = stage.topic("forgets-producers")

    def send(line: str, sequence: int, *, epoch: int = 0) -> None:
        stage.until(lambda: not active(stage, topic))
        Sender(stage, 13, topic, 5_000).send(line, sequence, epoch=epoch)

    send("first", 0, epoch=3)
    send("the next", 1, epoch=3)
    send("the same again", 1, epoch=3)
    send("a gap", 9, epoch=3)
    send("an older epoch", 4, epoch=2)
    send("a newer epoch, not from zero", 7, epoch=5)


def active(stage: Stage, topic: Topic) -> list[Any]:
    request = DescribeProducersRequest([TopicRequest(topic.name, [0])])
    answer: Any = stage.connection.ask(describe_producers, 0, request)
    found: list[Any] = answer.topics[0].partitions[0].active_producers
    return found


def producers_with_transactions(stage: Stage) -> None:
    """A transaction keeps its producer known. When it is not any more, the coordinator still is."""
    with_past(stage)
    for version in (10, 11, ADDS, 13):
        topic = stage.topic(f"forgets-transactions-{version}")
        producer = ready(stage, f"forgets-transactions-{version}")
        ends = BUMPS if version >= ADDS else 4

        def begin(producer: Producer = producer, topic: Topic = topic, ends: int = ends) -> None:
            if ends != BUMPS:
                producer.add(None, 3, (topic.name, [0]))

        begin()
        producer.send(f"v{version} first", version, topic, 0)
        with quickly_forgotten(stage):
            other = Sender(stage, 13, topic, 6_000)
            other.send(f"beside v{version}", 0)
            stage.until(lambda topic=topic: len(active(stage, topic)) == 1)  # type: ignore[misc]
            producer.send(f"v{version} while it is open", version, topic, 1)
            producer.end(f"v{version} ends", ends, commit=True)
            stage.until(lambda topic=topic: not active(stage, topic))  # type: ignore[misc]
        old = producer.epoch - 1
        producer.send(f"v{version} of before", version, topic, 2, producer_epoch=old)
        begin()
        producer.send(f"v{version} not from zero", version, topic, 2)
        producer.send(f"v{version} from zero", version, topic, 0)
        producer.end(f"v{version} ends again", ends, commit=True)


@contextmanager
def quickly_forgotten(stage: Stage) -> Iterator[None]:
    change(stage, SET, "1")
    try:
        yield
    finally:
        change(stage, DELETE, None)


def change(stage: Stage, kind: int, value: str | None) -> None:
    setting = AlterableConfig("producer.id.expiration.ms", kind, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", [setting])])
    answer: Any = stage.connection.ask(incremental_alter_configs, 1, request)
    assert answer.responses[0].error_code == 0, answer
    stage.publish()


STORIES = (
    offsets_and_groups,
    transactional_ids,
    producers_of_a_partition,
    producers_with_transactions,
)
