"""Records of the internal topics in the words of their formats: groups, transactions, share state.

All kinds of Apache Kafka 4.3 are known here, also those of share and streams groups, which our
broker ignores: a folder may have been Apache's. A kind of a later release comes as None.
"""

from __future__ import annotations

from headrace.node.coordination.group.records import CODEC as GROUPS
from headrace.node.coordination.records import RecordCodec
from headrace.node.coordination.transaction.transaction import CODEC as TRANSACTIONS
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import (
    share_group_current_member_assignment_key,
    share_group_current_member_assignment_value,
    share_group_member_metadata_key,
    share_group_member_metadata_value,
    share_group_metadata_key,
    share_group_metadata_value,
    share_group_state_partition_metadata_key,
    share_group_state_partition_metadata_value,
    share_group_target_assignment_member_key,
    share_group_target_assignment_member_value,
    share_group_target_assignment_metadata_key,
    share_group_target_assignment_metadata_value,
    share_snapshot_key,
    share_snapshot_value,
    share_update_key,
    share_update_value,
    streams_group_current_member_assignment_key,
    streams_group_current_member_assignment_value,
    streams_group_member_metadata_key,
    streams_group_member_metadata_value,
    streams_group_metadata_key,
    streams_group_metadata_value,
    streams_group_target_assignment_member_key,
    streams_group_target_assignment_member_value,
    streams_group_target_assignment_metadata_key,
    streams_group_target_assignment_metadata_value,
    streams_group_topology_key,
    streams_group_topology_value,
)

OTHER_GROUPS = RecordCodec(
    [
        (share_group_metadata_key, share_group_metadata_value),
        (share_group_member_metadata_key, share_group_member_metadata_value),
        (share_group_target_assignment_metadata_key, share_group_target_assignment_metadata_value),
        (share_group_target_assignment_member_key, share_group_target_assignment_member_value),
        (share_group_current_member_assignment_key, share_group_current_member_assignment_value),
        (share_group_state_partition_metadata_key, share_group_state_partition_metadata_value),
        (streams_group_metadata_key, streams_group_metadata_value),
        (streams_group_member_metadata_key, streams_group_member_metadata_value),
        (
            streams_group_target_assignment_metadata_key,
            streams_group_target_assignment_metadata_value,
        ),
        (streams_group_target_assignment_member_key, streams_group_target_assignment_member_value),
        (
            streams_group_current_member_assignment_key,
            streams_group_current_member_assignment_value,
        ),
        (streams_group_topology_key, streams_group_topology_value),
    ]
)
SHARE_STATE = RecordCodec(
    [(share_snapshot_key, share_snapshot_value), (share_update_key, share_update_value)]
)
BY_TOPIC = {
    "__consumer_offsets": (GROUPS, OTHER_GROUPS),
    "__transaction_state": (TRANSACTIONS,),
    "__share_group_state": (SHARE_STATE,),
}


def codecs_of(folder: str) -> tuple[RecordCodec, ...]:
    """The codecs for the records in a partition's folder; none if it is not an internal topic's."""
    return BY_TOPIC.get(folder.rpartition("-")[0], ())


def in_words(
    codecs: tuple[RecordCodec, ...], key: bytes, value: bytes | None
) -> tuple[str, str | None] | None:
    """Key and value; None if no format fits, because another program wrote the record."""
    for codec in codecs:
        try:
            found = codec.decode(key, value)
        except MalformedMessage:
            return None
        if found is not None:
            return repr(found.key), None if found.value is None else repr(found.value)
    return None
