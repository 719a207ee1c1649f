"""The responses to BeginQuorumEpoch and EndQuorumEpoch: the same contents in different messages."""

from __future__ import annotations

from typing import Any

from headrace.node.consensus.quorum.messages import Response
from headrace.node.consensus.quorum.wire.names import (
    PARTITION,
    Names,
    error_of,
    failed,
    node_endpoints,
    only_partition,
)
from headrace.node.metadata.topic_names import METADATA_TOPIC


def fields_of(messages: Any, response: Response) -> dict[str, Any]:
    """Returns the fields of the response; `messages` is the API's module."""
    partition = messages.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
    )
    topic = messages.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return {
        "topics": [topic],
        "node_endpoints": node_endpoints(messages.NodeEndpoint, response),
    }


def decode_response(message: Any, names: Names) -> Response:
    if message.error_code:
        return failed(Response, message.error_code)
    partition = only_partition(message.topics, "topic_name", "partition_index")
    return Response(
        error_of(partition.error_code),
        partition.leader_epoch,
        partition.leader_id,
        names.endpoint_of_leader(partition.leader_id, message.node_endpoints),
    )
