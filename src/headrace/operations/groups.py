"""What is known about the lag of a group. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.groups import GroupDescription


@dataclass(slots=True)
class KnownLag:
    """The known part of a group's lag. Without a commit a partition's lag is unknown: its reader
    decides where it begins."""

    lag: int | None  # None if no partition's lag is known: not the same as 0
    partitions: int  # with an unknown lag
    without_commit: int  # of these, partitions whose records can be counted
    unread: int  # and how many records those hold

    @property
    def without_leader(self) -> int:
        return self.partitions - self.without_commit


def known_lag(group: GroupDescription) -> KnownLag:
    known = [one.lag for one in group.progress if one.lag is not None]
    never = [one.unread for one in group.unknown if one.unread is not None]
    return KnownLag(sum(known) if known else None, len(group.unknown), len(never), sum(never))
