"""Share and streams groups that are found in the log of groups keep their names.

Apache Kafka cannot load a partition in which a consumer group has the name of a share group.
"""

import pytest

from headrace.node.coordination.group.records import CODEC
from headrace.node.coordination.records import Record
from headrace.wire.protocol import record_batch
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from headrace.wire.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from headrace.wire.protocol.messages.streams_group_member_metadata_key import (
    StreamsGroupMemberMetadataKey,
)
from headrace.wire.protocol.messages.streams_group_member_metadata_value import (
    StreamsGroupMemberMetadataValue,
)
from headrace.wire.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from headrace.wire.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from tests.unit.node.broker.groups.group_readers import Reader
from tests.unit.node.broker.groups.group_rig import GroupRig

E = ErrorCode
KINDS = [
    [(ShareGroupMetadataKey("other"), ShareGroupMetadataValue(3))],
    [
        (StreamsGroupMetadataKey("other"), StreamsGroupMetadataValue(3)),
        (StreamsGroupMemberMetadataKey("other", "m"), StreamsGroupMemberMetadataValue()),
    ],
]


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("other")
    rig.create("orders", 2)
    return rig


def written(rig, pairs):
    """As if they had been found in the log."""
    for key, value in pairs:
        journal = rig.node.broker.groups.shard_of("other").journal
        pair = CODEC.encode(Record(key, value))
        batch = record_batch.build(
            [record_batch.Record(*pair, [], rig.now.wall_ms)], base_offset=journal.end_offset
        )
        journal.append(batch, rig.now.wall_ms)


def gone(pairs):
    return [(key, None) for key, _ in reversed(pairs)]


@pytest.mark.parametrize("pairs", KINDS, ids=["share", "streams"])
def test_its_name_is_taken_until_it_is_gone(rig, pairs):
    written(rig, pairs)
    assert rig.join("other").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert Reader(rig, "other", "a", "orders").beat().error_code == E.GROUP_ID_NOT_FOUND
    written(rig, gone(pairs))
    assert Reader(rig, "other", "a", "orders").beat().error_code == E.NONE


@pytest.mark.parametrize("pairs", KINDS, ids=["share", "streams"])
def test_a_classic_group_may_have_the_name_of_one_that_is_gone(rig, pairs):
    written(rig, pairs)
    written(rig, gone(pairs))
    assert rig.join("other").error_code == E.MEMBER_ID_REQUIRED
