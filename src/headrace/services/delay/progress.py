"""How far a partition of the intake is settled: what the group's committed offset says.

A record of the intake is done if and only if its offset is below `position` and its
(due, offset) is not above `watermark`. Records below `far` that are not done have a copy in the
topic `headrace.delay.far`. All of it stands in one commit, position as the offset and the rest as
its metadata, so it changes in the transaction that delivers.
"""

from __future__ import annotations

from dataclasses import dataclass

# (due_ms, offset): the order of delivery within a partition.
DueKey = tuple[int, int]
BEFORE_ALL: DueKey = (-1, -1)


@dataclass(slots=True)
class Progress:
    position: int = 0  # `c`: intake offsets below it are taken
    watermark: DueKey = BEFORE_ALL  # `W`: of those, everything up to it is done
    far: int = 0  # `F`: of those, whatever is below it and not done is in the far topic


def to_metadata(progress: Progress, transactional_id: str) -> str:
    """The commit's metadata: all but the position, and who wrote it (to be fenced by others)."""
    raise NotImplementedError


def from_commit(offset: int, metadata: str | None) -> tuple[Progress, str]:
    """Progress and transactional id. Raises ValueError for metadata of somebody else."""
    raise NotImplementedError
