"""The events of runs of whole clusters; sets of seeds in which something never happened fail."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

Numbers = dict[str, int]
# Counters that may be 0 in a set of seeds, or that do not depend on faults.
NOT_REQUIRED = {
    "refusals",
    "slowest_recovery_ms",
    "virtual_seconds",
    "lost_records",
    "starts_given_up",
}


@dataclass(slots=True)
class ClusterReport:
    """What happened in one run, or in several."""

    virtual_seconds: int = 0
    acknowledged: int = 0  # records
    read: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    offsets_committed: int = 0  # requests of groups
    elections: int = 0  # of leaders of partitions
    controllers: int = 0  # elections of them
    isr_changes: int = 0
    truncations: int = 0
    crashes: int = 0  # of machines
    crashes_with_unflushed_bytes: int = 0
    power_cuts: int = 0  # all machines at once
    cuts_of_one: int = 0  # machines that lose power in the middle of their writes
    cuts_of_two: int = 0
    cuts_of_three: int = 0  # or more
    kills: int = 0  # of processes
    stops: int = 0
    pauses: int = 0
    lost_disks: int = 0
    cuts: int = 0
    one_way_cuts: int = 0
    firewalls: int = 0  # that refuse connections to a node that lives
    refused_connections: int = 0
    clock_jumps: int = 0
    slow_disks: int = 0
    broken_folders: int = 0
    replaced_folders: int = 0  # of those, by empty ones
    full_disks: int = 0
    deleted_segments: int = 0
    damaged_leaders: int = 0
    replicas_moved: int = 0  # to the other data folder of their node, or at least begun
    lost_messages: int = 0
    doubled_messages: int = 0
    topics_made: int = 0
    topics_deleted: int = 0
    configs_set: int = 0
    reassignments: int = 0
    deletions: int = 0  # of records
    elections_asked_for: int = 0
    voters_changed: int = 0
    voters_joined: int = 0  # by themselves
    slowest_recovery_ms: int = 0
    lost_records: int = 0  # acknowledged ones, of runs beyond the promise
    starts_given_up: int = 0  # no controller was found within a minute
    refusals: Numbers = field(default_factory=dict)  # the refusals that clients got, and how often

    def add(self, other: ClusterReport) -> None:
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if each.name == "refusals":
                for name, count in theirs.items():
                    self.refusals[name] = self.refusals.get(name, 0) + count
            elif each.name == "slowest_recovery_ms":
                self.slowest_recovery_ms = max(mine, theirs)
            else:
                setattr(self, each.name, mine + theirs)

    def zeros(self) -> list[str]:
        names = [each.name for each in fields(self) if each.name not in NOT_REQUIRED]
        return [name for name in names if not getattr(self, name)]

    def __str__(self) -> str:
        named = [each.name for each in fields(self) if each.name != "refusals"]
        told = ", ".join(
            f"{name.replace('_', ' ')} {getattr(self, name):,}"
            for name in named
            if getattr(self, name)
        )
        refused = ", ".join(f"{name} {count:,}" for name, count in sorted(self.refusals.items()))
        return f"{told}; clients were told: {refused or 'nothing else'}"
