"""A clean stop and a new start: a new leader epoch, and everything known before is known still.

Also what is asked at once, while Apache Kafka's coordinators load: "not yet" is an answer, "there
is nothing" is not.
"""

from __future__ import annotations

import time
from typing import Any

from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from headrace.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.protocol.messages.end_txn import EndTxnRequest
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.protocol.messages.list_groups import ListGroupsRequest
from headrace.wire.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.batches import TRANSACTIONAL, R, build
from tests.conformance.seeds import now_ms
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)
from tests.conformance.stories.configs import TOPIC, describe
from tests.conformance.stories.group_consumers import joining
from tests.conformance.stories.group_members import join, leave, sync
from tests.conformance.stories.group_offsets import commit, place
from tests.conformance.stories.group_offsets import fetch as fetch_offsets
from tests.conformance.stories.group_refusals import forget_offsets
from tests.conformance.stories.list_offsets import asked
from tests.conformance.stories.past import (
    ASKED_OF_GROUPS,
    ASKED_OF_IDS,
    CROWDED_ID,
    crowded_group,
    old_batch,
    with_past,
)
from tests.conformance.stories.transactions import CONCURRENT, codes, forget_ids

EPOCHS = ("leader_epoch", "epoch")
# Codes by which a broker asks a client to come again: it loads, is not ready, an end is under way.
NOT_YET = {14, 15, 16, 19, 5, 6, CONCURRENT}
WITHIN_S = 180

Question = tuple[Any, int, Any]  # API, version, request


def asked_at_once(stage: Stage) -> None:
    with_past(stage)
    topic = stage.learn("crowded")
    until_answered(stage, of_groups(topic) | of_transactions(topic))
    # While it loads, Apache Kafka leaves out of its lists what it does not know yet, and says yes
    # to every heartbeat; so these are asked behind the others.
    until_answered(stage, when_loaded())
    listed = stage.answers["list"]
    listed["groups"] = listed["groups"].get(crowded_group("look"))


def until_answered(stage: Stage, left: dict[str, Question]) -> None:
    """Turn by turn, so that every API is asked while the broker loads."""
    deadline = time.monotonic() + WITHIN_S
    while left:
        assert time.monotonic() < deadline, f"never answered: {list(left)}"
        for line, question in list(left.items()):
            answer: Any = stage.connection.ask(*question)
            if not codes(answer) & NOT_YET:
                stage.keep(line, answer)
                forget_ids(stage.answers[line])
                del left[line]


def when_loaded() -> dict[str, Question]:
    known = ListTransactionsRequest(producer_id_filters=[CROWDED_ID])
    return {
        "list": (list_groups, 5, ListGroupsRequest()),
        "list ids": (list_transactions, 1, known),
        "beat": (heartbeat, 4, HeartbeatRequest(crowded_group("beat"), 1, "m")),
    }


def of_groups(topic: Topic) -> dict[str, Question]:
    group = {what: crowded_group(what) for what in ASKED_OF_GROUPS}
    look = group["look"]
    offsets = {
        f"fetch v{version}": (offset_fetch, version, fetch_offsets(version, look, topic, 0))
        for version in offset_fetch.VERSIONS
    }
    everything = {
        f"fetch all v{version}": (offset_fetch, version, fetch_offsets(version, look, None))
        for version in offset_fetch.VERSIONS[1:]
    }
    return {
        **offsets,
        **everything,
        "find": (find_coordinator, 4, FindCoordinatorRequest(look, 0, [look])),
        "describe": (describe_groups, 6, DescribeGroupsRequest([look])),
        "describe 848": (consumer_group_describe, 1, ConsumerGroupDescribeRequest([look])),
        "commit": (offset_commit, 9, commit(group["commit"], topic, place(43))),
        "join": (join_group, 9, join(group["join"])),
        "sync": (sync_group, 5, sync(group["sync"], "m", 1)),
        "leave": (leave_group, 5, leave(group["leave"], ("m", None))),
        "forget": (offset_delete, 0, forget_offsets(group["forget"], topic.name)),
        "delete": (delete_groups, 2, DeleteGroupsRequest([group["delete"]])),
        "join 848": (consumer_group_heartbeat, 1, joining(group["join 848"], "m", topic.name)),
    }


def of_transactions(topic: Topic) -> dict[str, Question]:
    name = {what: f"crowded {what}" for what in ASKED_OF_IDS}
    ids = {what: CROWDED_ID + number for number, what in enumerate(ASKED_OF_IDS)}
    who = {what: (name[what], ids[what], 0) for what in ASKED_OF_IDS}
    group = crowded_group("txn commit")
    part = TxnOffsetCommitRequestTopic(topic.name, [TxnOffsetCommitRequestPartition(0, 44)])
    offsets = TxnOffsetCommitRequest(name["commit"], group, ids["commit"], 0, topics=[part])
    record = build(
        R(),
        producer_id=ids["record"],
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    added = AddPartitionsToTxnRequest([], *who["add"], [AddPartitionsToTxnTopic(topic.name, [0])])
    find = FindCoordinatorRequest(name["look"], 1, [name["look"]])
    return {
        "find id": (find_coordinator, 4, find),
        "describe id": (describe_transactions, 0, DescribeTransactionsRequest([name["look"]])),
        "init": (init_producer_id, 5, InitProducerIdRequest(name["init"], 60_000)),
        "add": (add_partitions_to_txn, 3, added),
        "add offsets": (
            add_offsets_to_txn,
            4,
            AddOffsetsToTxnRequest(*who["add offsets"], group),
        ),
        "commit offsets": (txn_offset_commit, 5, offsets),
        "end": (end_txn, 5, EndTxnRequest(*who["end"], True)),
        "record": (
            produce,
            12,
            produce_request(12, topic, record, transactional_id=name["record"]),
        ),
    }


def epochs_after_a_restart(stage: Stage) -> None:
    with_past(stage)
    stage.until(lambda: stage.is_ready("restarted", 1))
    topic = stage.learn("restarted")
    epoch = stage.find("restarted").partitions[0].leader_epoch
    assert epoch > 0, "a new start is a new epoch"

    def ask(line: str, api: Any, version: int, request: Any) -> None:
        stage.ask(line, api, version, request)
        stage.answers[line] = in_words(stage.answers[line], epoch)

    ask("duplicate of before", produce, 13, produce_request(13, topic, old_batch()))
    who: dict[str, Any] = {"producer_id": 900, "producer_epoch": 1, "base_timestamp": now_ms()}
    next_one = build(R(b"3"), base_sequence=2, **who)
    ask("goes on", produce, 13, produce_request(13, topic, next_one))
    active = DescribeProducersRequest([TopicRequest("restarted", [0])])
    ask("producers", describe_producers, 0, active)
    for name, number in {"current": epoch, "old": epoch - 1, "future": epoch + 1}.items():
        wanted = fetch_topic(13, topic, from_offset(0, leader_epoch=number))
        ask(f"fetch in the {name} epoch", fetch, 13, fetch_request(wanted))
        at = asked("restarted", 0, -1, leader_epoch=number)
        ask(f"list in the {name} epoch", list_offsets, 7, at)
        end = epoch_end(number, 0)
        ask(f"end in the {name} epoch", offset_for_leader_epoch, 4, end)
    for name, number in {"first": 0, "current": epoch, "future": epoch + 5}.items():
        ask(f"end of the {name} epoch", offset_for_leader_epoch, 4, epoch_end(-1, number))
    diverged = fetch_topic(13, topic, from_offset(3, last_fetched_epoch=0))
    ask("diverged", fetch, 13, fetch_request(diverged))
    ask("settings", describe_configs, 4, describe(TOPIC, "restarted", ["flush.ms"]))


def epoch_end(current: int, asked_for: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(0, current, asked_for)
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("restarted", [partition])])


def in_words(answer: Any, epoch: int) -> Any:
    """How far an epoch rises by a restart is the controller's affair."""
    if isinstance(answer, dict):
        return {
            key: "current" if key in EPOCHS and value == epoch else in_words(value, epoch)
            for key, value in answer.items()
        }
    if isinstance(answer, list):
        return [in_words(element, epoch) for element in answer]
    return answer


STORIES = (asked_at_once, epochs_after_a_restart)
