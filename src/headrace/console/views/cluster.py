"""The cluster: brokers, their disks, the quorum, replicas in trouble, moves, a checkup. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.cluster import LogFolder
from headrace.console.access.cluster import ClusterFacts
from headrace.operations.checkup.finding import Finding, FindingState
from headrace.operations.replicas import TroubledPartition

MOST_TROUBLED = 100


@dataclass(slots=True)
class BrokerRow:
    id: int
    address: str
    rack: str | None
    is_controller: bool
    leads: int
    holds: int
    bytes: int | None  # of partitions
    usable_bytes: int | None
    total_bytes: int | None
    used_share: float | None  # of its disks
    problem: str
    leads_share: float = 0.0  # of the broker that leads most
    bytes_share: float = 0.0  # of the broker that stores most


@dataclass(slots=True)
class ClusterPage:
    id: str
    brokers: list[BrokerRow]
    missing: list[str]
    troubled: list[TroubledPartition]  # the first of them
    troubled_left_out: int


def cluster_page(facts: ClusterFacts) -> ClusterPage:
    by_broker: dict[int, list[LogFolder]] = {}
    for folder in facts.folders.answer or []:
        by_broker.setdefault(folder.broker, []).append(folder)
    quorum = facts.quorum.answer
    leader = facts.cluster.controller if quorum is None else quorum.leader
    rows = []
    for broker in facts.cluster.brokers:
        folders = by_broker.get(broker.id, [])
        usable = [each.usable_bytes for each in folders if each.usable_bytes is not None]
        total = [each.total_bytes for each in folders if each.total_bytes is not None]
        rows.append(
            BrokerRow(
                broker.id,
                f"{broker.host}:{broker.port}",
                broker.rack,
                broker.id == leader,
                facts.replicas.leads[broker.id],
                facts.replicas.holds[broker.id],
                sum(sum(each.sizes.values()) for each in folders) if folders else None,
                sum(usable) if usable else None,
                sum(total) if total else None,
                1 - sum(usable) / sum(total) if usable and sum(total) else None,
                "; ".join(
                    f"{each.path}: {each.failure or 'the disk is full'}"
                    for each in folders
                    if each.failure or each.is_full
                ),
            )
        )
    most_leads = max((row.leads for row in rows), default=0)
    most_bytes = max((row.bytes or 0 for row in rows), default=0)
    for row in rows:
        row.leads_share = row.leads / most_leads if most_leads else 0.0
        row.bytes_share = (row.bytes or 0) / most_bytes if most_bytes else 0.0
    parts = (facts.folders, facts.quorum, facts.moves)
    missing = list(dict.fromkeys(each.missing for each in parts if each.missing))
    troubled = facts.replicas.troubled
    left_out = max(len(troubled) - MOST_TROUBLED, 0)
    return ClusterPage(facts.cluster.id, rows, missing, troubled[:MOST_TROUBLED], left_out)


# The worst first: a word, and the colour of its badge.
STATES = {
    FindingState.WRONG: ("wrong", "bad"),
    FindingState.WATCH: ("watch", "warn"),
    FindingState.GOOD: ("good", "good"),
}


@dataclass(slots=True)
class FindingRow:
    about: str
    state: str
    badge: str
    found: str
    advice: str


@dataclass(slots=True)
class CheckupPage:
    rows: list[FindingRow]
    wrong: int
    watch: int


def checkup_page(findings: list[Finding]) -> CheckupPage:
    order = list(STATES)
    worst_first = sorted(findings, key=lambda each: order.index(each.state))
    return CheckupPage(
        [
            FindingRow(each.about, *STATES[each.state], each.found, each.advice or "")
            for each in worst_first
        ],
        sum(each.state is FindingState.WRONG for each in findings),
        sum(each.state is FindingState.WATCH for each in findings),
    )
