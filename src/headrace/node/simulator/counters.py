"""The events of a run. A set of seeds in which something never happened has not tested it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields


@dataclass(slots=True)
class Counters:
    events: int = 0
    elections: int = 0
    commits: int = 0  # of the high watermark, by a leader
    acknowledged: int = 0  # appends that were acknowledged to a client as committed
    truncations: int = 0
    snapshots_taken: int = 0
    snapshots_installed: int = 0
    voters_changed: int = 0
    crashes: int = 0
    crashes_with_unflushed_bytes: int = 0
    power_cuts: int = 0
    lost_disks: int = 0
    moved_nodes: int = 0
    pauses: int = 0
    cuts: int = 0
    lost_messages: int = 0
    duplicated_messages: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def zeros(self) -> list[str]:
        return [field.name for field in fields(self) if getattr(self, field.name) == 0]

    def __str__(self) -> str:
        names = (field.name for field in fields(self))
        return ", ".join(f"{name.replace('_', ' ')} {getattr(self, name)}" for name in names)
