"""The answers to the five APIs of share partitions' state, which brokers send to the coordinator.

Partitions are independent of one another: each has its own result, and the response leaves when all
are committed. Needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.node.broker.coordinators.share_state_access import StateApi
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.serving.api import Call, WaitingRequest, require_few_partitions
from headrace.node.serving.chain import all_of, or_refused
from headrace.node.serving.rights import may_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker


def answer_state(broker: Broker, api: StateApi, request: Any, call: Call) -> Any | WaitingRequest:
    messages = api.messages
    if not request.group_id:
        return api.response()
    count = sum(len(topic.partitions) for topic in request.topics)
    require_few_partitions(messages.NAME, count)
    allowed = may_on_cluster(broker, call, Operation.CLUSTER_ACTION)
    results: list[Any | WaitingRequest] = []
    for topic in request.topics:
        for data in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
            results.append(_answer_one(broker, api, key, data, call, allowed))

    def finish(found: list[Any]) -> Any:
        parts = iter(found)
        return api.response(
            [
                api.result(topic.topic_id, [next(parts) for _ in topic.partitions])
                for topic in request.topics
            ]
        )

    return all_of(results, finish)


def _answer_one(
    broker: Broker, api: StateApi, key: SharePartitionKey, data: Any, call: Call, allowed: bool
) -> Any | WaitingRequest:
    def refused(code: ErrorCode, message: str | None = None) -> Any:
        return api.messages.PartitionResult(
            partition=key.partition,
            error_code=code,
            error_message=message or code.description,
        )

    if not allowed:
        return refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return or_refused(api.ask(broker, key, data, call.now), refused)
    except KafkaError as refusal:
        return refused(refusal.code, refusal.message)
