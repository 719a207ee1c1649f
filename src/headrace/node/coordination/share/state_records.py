"""The records of `__share_group_state`, in the formats of Apache Kafka 4.3.

A ShareSnapshot is the whole state of a share partition, or its end if it has no value; a
ShareUpdate changes what the records before it have left. So every record counts, and the topic is
not compacted.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.node.coordination.records import Record, RecordCodec
from headrace.node.coordination.share.state_batches import KeptBatch
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.wire.protocol.messages import (
    share_snapshot_key,
    share_snapshot_value,
    share_update_key,
    share_update_value,
)
from headrace.wire.protocol.messages.share_snapshot_key import ShareSnapshotKey
from headrace.wire.protocol.messages.share_snapshot_value import ShareSnapshotValue
from headrace.wire.protocol.messages.share_update_key import ShareUpdateKey
from headrace.wire.protocol.messages.share_update_value import ShareUpdateValue

CODEC = RecordCodec(
    [(share_snapshot_key, share_snapshot_value), (share_update_key, share_update_value)],
    adds_up=True,
)


def snapshot(key: SharePartitionKey, value: ShareSnapshotValue) -> Record:
    return Record(ShareSnapshotKey(*key), value)


def snapshot_batches(batches: Iterable[KeptBatch]) -> list[share_snapshot_value.StateBatch]:
    return [share_snapshot_value.StateBatch(*batch) for batch in batches]


def update(key: SharePartitionKey, value: ShareUpdateValue) -> Record:
    return Record(ShareUpdateKey(*key), value)


def update_batches(batches: Iterable[KeptBatch]) -> list[share_update_value.StateBatch]:
    return [share_update_value.StateBatch(*batch) for batch in batches]


def forgotten(key: SharePartitionKey) -> Record:
    return Record(ShareSnapshotKey(*key), None)
