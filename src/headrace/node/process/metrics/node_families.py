"""The metrics of a node itself: connections, logs, partitions, disks, limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.node.assembly.node import Node
from headrace.node.process.listeners.listener import Door
from headrace.node.process.loop import Loop
from headrace.node.process.metrics.folder_metrics import folder_families
from headrace.node.process.metrics.metrics import (
    cleaner_families,
    damage_families,
    limit_families,
    scrub_families,
)
from headrace.node.process.metrics.replica_metrics import replica_families
from headrace.prometheus_text import Family

if TYPE_CHECKING:
    from headrace.node.process.listeners.security import Security


def node_families(
    node: Node, loop: Loop, door: Door, security: Security | None
) -> Iterator[Family]:
    broker = node.broker
    leaders = [p for topic in list(broker.topics.by_name.values()) for p in list(topic.here())]
    labelled = [({"topic": p.topic, "partition": p.index}, p) for p in leaders]
    lag_ms, loop.lag_ms = loop.lag_ms, 0
    shortages = node.durability.shortages + node.partitions.open_files.shortages
    for name, kind, explanation, value in (
        ("headrace_connections", "gauge", "Open connections.", len(loop.connections)),
        ("headrace_connections_accepted_total", "counter", "Let in.", door.accepted),
        ("headrace_connections_refused_total", "counter", "Closed by us.", loop.refused),
        ("headrace_parked_requests", "gauge", "Waiting.", node.purgatory.waiting),
        ("headrace_fetch_sessions", "gauge", "Sessions.", len(broker.fetch_sessions)),
        ("headrace_received_bytes_total", "counter", "From clients.", loop.bytes_in),
        ("headrace_fetched_bytes_total", "counter", "Records sent.", broker.bytes_out),
        ("headrace_disk_refusals_total", "counter", "Refused writes.", broker.disk_refusals),
        (
            "headrace_share_dead_letters_total",
            "counter",
            "Dead letters of share groups that were written.",
            broker.shared.letters_written,
        ),
        (
            "headrace_share_dead_letters_refused_total",
            "counter",
            "Attempts to write dead letters that failed.",
            broker.shared.letters_refused,
        ),
        (
            "headrace_share_dead_letters_due",
            "gauge",
            "Records that a share group gave up and whose dead letters are not written yet.",
            broker.shared.letters_due,
        ),
        ("headrace_unread_bytes", "gauge", "Answers not taken.", loop.unread_bytes),
        ("headrace_descriptor_shortages_total", "counter", "None was free.", shortages),
        ("headrace_loop_lag_seconds", "gauge", "Longest turn since asked.", lag_ms / 1000),
    ):
        yield Family(name, kind, explanation, [({}, value)])
    yield Family(
        "headrace_coordinator_damaged_partitions",
        "gauge",
        "Partitions of a coordinator's topic that are not loaded: a batch fails its checksum.",
        [({"topic": each.topic}, each.damaged) for each in broker.coordinators.values()],
    )
    yield from damage_families(node.partitions.open_files.findings, labelled)
    yield from folder_families(broker)
    yield from cleaner_families(node.cleaner)
    yield from scrub_families(node.scrubber)
    yield from replica_families(broker)
    yield from quorum_families(node)
    if security is not None:
        yield from security.families()
    yield from limit_families(node.quotas, node.auditor, node.audit)
    yield Family(
        "headrace_log_bytes",
        "gauge",
        "Size of a partition's log.",
        [(labels, p.log.size_bytes) for labels, p in labelled],
    )
    yield Family(
        "headrace_log_end_offset",
        "gauge",
        "The offset that the next record will get.",
        [(labels, p.log.end_offset) for labels, p in labelled],
    )
    yield Family(
        "headrace_produced_bytes_total",
        "counter",
        "Bytes of records appended by clients.",
        [(labels, p.bytes_in) for labels, p in labelled],
    )


def quorum_families(node: Node) -> Iterator[Family]:
    """The node's view of the metadata quorum; nothing for a node alone."""
    if node.links is None:
        return
    quorum = node.member.log.host.quorum
    counts, image = node.controller.elections, node.controller.committed_image
    lag = max(0, quorum.leader_high_watermark - quorum.high_watermark)
    for name, kind, explanation, value in (
        ("active_controller", "gauge", "1: this node leads the quorum.", node.controller.is_active),
        (
            "quorum_leader_id",
            "gauge",
            "Node id of the active controller; -1: none or unknown.",
            quorum.leader_id,
        ),
        ("quorum_epoch", "gauge", "Grows with every election of the quorum.", quorum.epoch),
        ("quorum_voters", "gauge", "How many vote.", len(quorum.voters.latest)),
        ("quorum_is_voter", "gauge", "1: this node votes.", quorum.is_voter),
        ("quorum_high_watermark", "gauge", "Records committed here.", quorum.high_watermark),
        ("quorum_lag_records", "gauge", "Committed by the leader, and not here yet.", lag),
        ("broker_unfenced", "gauge", "1: clients are served.", node.links.is_unfenced),
        (
            "fenced_brokers",
            "gauge",
            "Registered in the cluster, and away.",
            sum(broker.fenced for broker in list(image.brokers.values())),
        ),
        (
            "leader_elections_total",
            "counter",
            "Partitions that got another leader from this controller.",
            counts.elections,
        ),
        (
            "unclean_leader_elections_total",
            "counter",
            "Elections of a leader that was not in sync: records may be lost.",
            counts.unclean,
        ),
    ):
        yield Family(f"headrace_{name}", kind, explanation, [({}, int(value))])
