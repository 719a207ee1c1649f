"""What is known of a group's lag."""

from __future__ import annotations

from headrace.client.admin.groups import GroupDescription, GroupProgress
from headrace.operations.groups import known_lag


def group(*progress: GroupProgress) -> GroupDescription:
    return GroupDescription("billing", "Empty", "classic", "", 1, progress=list(progress))


def test_a_group_without_commits_has_no_lag_and_not_one_of_zero() -> None:
    found = known_lag(group(GroupProgress("orders", 0, None, 7, unread=7)))
    assert (found.lag, found.partitions, found.without_commit, found.unread) == (None, 1, 1, 7)
    assert known_lag(group()).lag is None


def test_partitions_of_unknown_lag_are_told_apart_by_their_reason() -> None:
    found = known_lag(
        group(
            GroupProgress("orders", 0, 3, 7, unread=4),
            GroupProgress("orders", 1, None, 9, unread=9),
            GroupProgress("orders", 2, 5, None),
        )
    )
    assert found.lag == 4
    assert (found.without_commit, found.unread, found.without_leader) == (1, 9, 1)
