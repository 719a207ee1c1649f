"""A member of a share group: what it says and what it makes of the answers."""

from __future__ import annotations

import pytest

from headrace.client.errors import ClientError, NoShareGroups
from headrace.client.share.membership import ShareMember
from headrace.client.share.share_session import QueuePartition
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

JOBS = bytes(15) + b"\x09"


def joined() -> ShareMember:
    member = ShareMember("workers", "me", ["jobs"])
    parts = Assignment([TopicPartitions(JOBS, [0, 1])])
    assert member.heard(
        ShareGroupHeartbeatResponse(
            member_id="me", member_epoch=4, heartbeat_interval_ms=5_000, assignment=parts
        )
    )
    return member


def test_topics_are_named_when_it_joins_and_not_again() -> None:
    first = ShareMember("workers", "me", ["jobs"]).heartbeat()
    assert (first.member_epoch, first.subscribed_topic_names) == (0, ["jobs"])
    later = joined().heartbeat()
    assert (later.member_epoch, later.subscribed_topic_names) == (4, None)


def test_an_answer_without_an_assignment_changes_nothing() -> None:
    member = joined()
    member.heard(ShareGroupHeartbeatResponse(member_epoch=5, heartbeat_interval_ms=3_000))
    assert member.assigned == {QueuePartition(JOBS, 0), QueuePartition(JOBS, 1)}
    assert (member.epoch, member.interval_s) == (5, 3.0)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_forgotten_member_joins_again_with_its_id(code: ErrorCode) -> None:
    member = joined()
    assert not member.heard(ShareGroupHeartbeatResponse(error_code=code))
    assert (member.heartbeat().member_epoch, member.id, member.assigned) == (0, "me", frozenset())


def test_a_cluster_without_share_groups_says_what_to_do() -> None:
    answer = ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    with pytest.raises(NoShareGroups, match=r"share\.version"):
        joined().heard(answer)


def test_a_group_of_another_kind_is_named() -> None:
    answer = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(ClientError, match="workers is a consumer group already"):
        joined().heard(answer)


def test_a_coordinator_that_is_loading_is_asked_again() -> None:
    answer = ShareGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(ClientError) as raised:
        joined().heard(answer)
    assert raised.value.retriable


def test_it_leaves_with_the_last_epoch() -> None:
    assert joined().farewell().member_epoch == -1
