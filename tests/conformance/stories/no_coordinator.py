"""Groups and transactions before anybody has asked who coordinates them: NOT_COORDINATOR and kin.

Told first of all: FindCoordinator makes the coordinators' topics, and the other stories send it.
"""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    describe_transactions,
    end_txn,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
)
from headrace.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.protocol.messages.end_txn import EndTxnRequest
from headrace.wire.protocol.messages.heartbeat import HeartbeatRequest
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.protocol.messages.list_groups import ListGroupsRequest
from headrace.wire.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.batches import TRANSACTIONAL, R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import produce_request
from tests.conformance.stories.group_consumers import beat, joining
from tests.conformance.stories.group_members import join, leave, sync
from tests.conformance.stories.group_offsets import commit, fetch, place

G, T = "too-early", "too-early"  # a group, a transactional id


def groups(stage: Stage) -> None:
    topic = stage.topic("too-early-groups")
    for api, requests in of_groups(topic).items():
        for version in api.VERSIONS:
            for line, request in requests(version).items():
                stage.ask(f"{line} v{version}", api, version, request)


def of_groups(topic: Topic) -> dict[Any, Any]:
    """Per API, what is asked in a version of it."""
    part = OffsetDeleteRequestTopic(topic.name, [OffsetDeleteRequestPartition(0)])
    return {
        join_group: lambda v: {"join": join(G), "join as somebody": join(G, "m")},
        sync_group: lambda v: {"sync": sync(G, "m", 1)},
        heartbeat: lambda v: {"heartbeat": HeartbeatRequest(G, 1, "m")},
        leave_group: lambda v: {"leave": leave(G, ("m", None))},
        offset_commit: lambda v: {
            "commit": commit(G, topic, place(1)),
            "commit as a member": commit(G, topic, place(1), member="m", generation=1),
        },
        offset_fetch: lambda v: {
            "fetch": fetch(v, G, topic, 0),
            **({"fetch everything": fetch(v, G, None)} if v >= 2 else {}),
        },
        offset_delete: lambda v: {"delete offsets": OffsetDeleteRequest(G, [part])},
        describe_groups: lambda v: {"describe": DescribeGroupsRequest([G])},
        list_groups: lambda v: {"list": ListGroupsRequest()},
        delete_groups: lambda v: {"delete": DeleteGroupsRequest([G])},
        consumer_group_heartbeat: lambda v: {
            "join 848": joining(G, "m", topic.name),
            "beat 848": beat(G, "m", 3),
            "leave 848": beat(G, "m", -1),
        },
        consumer_group_describe: lambda v: {"describe 848": ConsumerGroupDescribeRequest([G])},
    }


def transactions(stage: Stage) -> None:
    topic = stage.topic("too-early-transactions")
    for api, requests in of_transactions(topic).items():
        for version in api.VERSIONS:
            for line, request in requests(version).items():
                stage.ask(f"{line} v{version}", api, version, request)
    record = build(R(), producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    for version in produce.VERSIONS:
        request = produce_request(version, topic, record, transactional_id=T)
        stage.ask(f"record v{version}", produce, version, request)


def of_transactions(topic: Topic) -> dict[Any, Any]:
    named = [AddPartitionsToTxnTopic(topic.name, [0])]
    part = TxnOffsetCommitRequestTopic(topic.name, [TxnOffsetCommitRequestPartition(0, 5)])

    def adding(version: int) -> dict[str, AddPartitionsToTxnRequest]:
        if version < 4:
            return {"add": AddPartitionsToTxnRequest([], T, 5, 0, named)}
        return {
            line: AddPartitionsToTxnRequest(
                [AddPartitionsToTxnTransaction(T, 5, 0, only_asks, named)]
            )
            for line, only_asks in {"add": False, "ask": True}.items()
        }

    return {
        init_producer_id: lambda v: {"init": InitProducerIdRequest(T, 60_000)},
        add_partitions_to_txn: adding,
        add_offsets_to_txn: lambda v: {"add offsets": AddOffsetsToTxnRequest(T, 5, 0, G)},
        txn_offset_commit: lambda v: {
            "commit offsets": TxnOffsetCommitRequest(T, G, 5, 0, topics=[part])
        },
        end_txn: lambda v: {"end": EndTxnRequest(T, 5, 0, True)},
        describe_transactions: lambda v: {"describe": DescribeTransactionsRequest([T])},
        list_transactions: lambda v: {"list": ListTransactionsRequest()},
    }


STORIES = (groups, transactions)
