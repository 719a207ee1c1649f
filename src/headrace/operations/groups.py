"""What is known of the lag of a group. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.groups import GroupDescription


@dataclass(slots=True)
class KnownLag:
    """Without a commit the lag of a partition is unknown: where its reader begins is up to it."""

    lag: int | None  # None where it is known of no partition: not the same as a lag of 0
    partitions: int  # whose lag is unknown
    without_commit: int  # of these, partitions whose records can be counted
    unread: int  # and how many records those hold

    @property
    def without_leader(self) -> int:
        return self.partitions - self.without_commit


def known_lag(group: GroupDescription) -> KnownLag:
    known = [one.lag for one in group.progress if one.lag is not None]
    never = [one.unread for one in group.unknown if one.unread is not None]
    return KnownLag(sum(known) if known else None, len(group.unknown), len(never), sum(never))
