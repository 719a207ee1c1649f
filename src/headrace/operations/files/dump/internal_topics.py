"""Records of the internal topics in the words of their formats: groups, transactions, share state.

All kinds of Apache Kafka 4.3 are known here. A kind of a later release comes as None.
"""

from __future__ import annotations

from headrace.node.coordination.group.records import CODEC as GROUPS
from headrace.node.coordination.records import RecordCodec
from headrace.node.coordination.transaction.transaction import CODEC as TRANSACTIONS
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import (
    share_snapshot_key,
    share_snapshot_value,
    share_update_key,
    share_update_value,
)

SHARE_STATE = RecordCodec(
    [(share_snapshot_key, share_snapshot_value), (share_update_key, share_update_value)]
)
BY_TOPIC = {
    "__consumer_offsets": (GROUPS,),
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
