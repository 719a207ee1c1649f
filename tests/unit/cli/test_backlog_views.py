"""`headrace backlog status`: one sentence for each group."""

from __future__ import annotations

import pytest

from headrace.cli.backlogged.views import tell_status
from headrace.services.backlog.lag import GroupLag, PartitionLag


def group(*, unread: int, members: dict[str, list[tuple[str, int]]]) -> GroupLag:
    partition = PartitionLag("orders", 0, 1, 1 + unread, unread, None, rate_in=0, rate_out=0)
    return GroupLag("billing", "Stable" if members else "Empty", members, [partition])


def told(lag: GroupLag, capsys: pytest.CaptureFixture[str]) -> str:
    tell_status(lag, [], whole=False)
    return capsys.readouterr().out.strip()


def test_a_group_without_members_is_not_called_too_slow(capsys: pytest.CaptureFixture[str]) -> None:
    lag = group(unread=1, members={})
    assert told(lag, capsys) == "billing: 1 record behind; 0/s in, 0/s out; no active members"


def test_a_group_that_does_not_read_never_catches_up(capsys: pytest.CaptureFixture[str]) -> None:
    lag = group(unread=5, members={"member-1": [("orders", 0)]})
    assert told(lag, capsys).endswith(
        "5 records behind; 0/s in, 0/s out; at these rates it never catches up"
    )


def test_a_group_that_has_read_everything_is_caught_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(group(unread=0, members={}), capsys).endswith("caught up")
