"""One batch for one partition, the most common Produce request: appended and acknowledged.

Both paths end here: the handler's (`handlers/produce.py`) and that of a request that was recognized
(`recognized/produce.py`).
"""

from __future__ import annotations

from headrace.environment import Now
from headrace.node.broker.broker import Broker
from headrace.node.broker.records.acknowledgements import acknowledgement
from headrace.node.broker.replicas.topics import Topic
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Peer
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.rights import TOPIC
from headrace.node.storage.append_rules import RecordsRefused
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.protocol.record_batch import ATTRIBUTES_AT, TRANSACTIONAL

ALL = -1  # acks
WRITE = Operation.WRITE
LOW_ATTRIBUTES_AT = ATTRIBUTES_AT + 1  # the byte with compression and kind of a batch

Found = tuple[Topic, int, int]  # which partition, and the acks


def append_to(
    broker: Broker, found: Found, records: memoryview, version: int, now: Now
) -> ProduceResponse | bytes | None:
    """Returns None, without side effects, if the request must wait or the batch is transactional;
    use the general path then."""
    topic, index, acks = found
    leader = topic.replicas[index]
    # Only a partition that commits at once and a batch outside transactions can be answered now.
    # The check comes before the append, so None always means that nothing has changed.
    if (
        leader is None
        or not leader.commits_at_once
        or len(records) <= LOW_ATTRIBUTES_AT
        or records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL
    ):
        return None
    try:
        base_offset, append_time = leader.append(records, now.wall_ms, acks_all=acks == ALL)
    except KafkaError as fault:
        # The general path must not try it again: the batch may carry its new offset already.
        return ProduceResponse(
            [TopicProduceResponse(topic.name, topic.id, [refused_by(leader, fault)])]
        )
    if leader.waiting or leader.sessions:
        broker.partition_changed(leader)
    return acknowledgement(topic, index, version, base_offset, append_time, leader.log.start_offset)


def may_write(authorizer: Authorizer, session: Peer, topic: str) -> bool:
    """Returns whether the client may write, and logs no refusal: a client without the right takes
    the general path and is refused there."""
    return authorizer.allows(session, WRITE, TOPIC, topic, quietly=True)


def refused_by(leader: PartitionLeader, fault: KafkaError) -> PartitionProduceResponse:
    """The answer of a partition for a batch that it refuses."""
    answer = refused(leader.index, fault)
    if isinstance(fault, RecordsRefused):
        answer.log_start_offset = leader.log.start_offset
        answer.record_errors = [
            BatchIndexAndErrorMessage(number, message) for number, message in fault.records
        ]
    return answer


def refused(index: int, fault: KafkaError) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, fault.code, -1, -1, -1, [], fault.message)
