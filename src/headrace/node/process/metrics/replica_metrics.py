"""Replicas for Prometheus: lag, under-replicated partitions, changes of in-sync replicas.

Read on another thread than the loop's, so it copies what it walks through.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.node.broker.broker import Broker
from headrace.node.metadata.image import NO_LEADER
from headrace.node.replication.replica import PartitionReplica
from headrace.prometheus_text import Family, Sample


def replica_families(broker: Broker) -> Iterator[Family]:
    here = [p for topic in list(broker.topics.by_name.values()) for p in list(topic.here())]
    leaders = [replica for replica in here if replica.leads]
    lags = [lag for replica in leaders for lag in lags_of(replica)]
    fetching, this = broker.replica_fetching, broker.this
    for name, kind, explanation, value in (
        ("replicas", "gauge", "Replicas on this broker.", len(here)),
        ("leaders", "gauge", "Partitions that this broker leads.", len(leaders)),
        (
            "under_replicated_partitions",
            "gauge",
            "Led here, with a replica that is not in sync.",
            sum(is_under_replicated(replica) for replica in leaders),
        ),
        (
            "under_min_isr_partitions",
            "gauge",
            "Led here, with fewer in sync than min.insync.replicas: acks=all is refused.",
            sum(replica.in_sync < replica.min_in_sync for replica in leaders),
        ),
        (
            "offline_partitions",
            "gauge",
            "Partitions of the whole cluster without a leader.",
            sum(
                partition.leader == NO_LEADER
                for topic in broker.image.topics.values()
                for partition in topic.partitions
            ),
        ),
        ("isr_shrinks_total", "counter", "Followers left the in-sync replicas.", this.isr_shrinks),
        ("isr_expands_total", "counter", "Followers joined them.", this.isr_expands),
        (
            "replica_max_lag_records",
            "gauge",
            "The largest lag of any follower.",
            max((n for _, n in lags), default=0),
        ),
        ("replica_fetches_total", "counter", "Sent to leaders.", fetching.fetches),
        ("replica_fetch_failures_total", "counter", "Not answered.", fetching.failures),
        ("replica_fetched_bytes_total", "counter", "Records from leaders.", fetching.bytes_in),
    ):
        yield Family(f"headrace_{name}", kind, explanation, [({}, value)])
    yield Family(
        "headrace_replica_lag_records",
        "gauge",
        "How far a follower of a partition led here is behind; those that are not are left out.",
        lags,
    )


def is_under_replicated(replica: PartitionReplica) -> bool:
    leading = replica.leading
    return leading is not None and len(leading.isr) < len(leading.followers) + 1


def lags_of(replica: PartitionReplica) -> Iterator[Sample]:
    leading = replica.leading
    if leading is None:
        return
    end_offset = replica.log.end_offset
    for follower, progress in list(leading.followers.items()):
        lag = end_offset - max(progress.end_offset, 0)
        if lag > 0:
            labels = {"topic": replica.topic, "partition": replica.index, "replica": follower}
            yield labels, lag
