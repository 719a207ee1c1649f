"""Handles replicas that the disk has lost here: the end of a log, or a data folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.broker.records.lost_acknowledgements import Lost
from headrace.node.storage.checkpoints import Partition


def logs_were_cut_back(broker: Broker, logs: Sequence[Any], why: str) -> list[Lost]:
    """The disk has refused records that were visible already, since appends commit at once there.
    All requests that wait for these logs are tried before anything else is appended to them."""
    lost = []
    cut = {id(log) for log in logs}
    for topic in broker.topics.by_name.values():
        for leader in topic.here():
            if id(leader.log) in cut:
                end_offset = leader.log.end_offset
                leader.high_watermark = min(leader.high_watermark, end_offset)
                for coordinator in broker.coordinators.values():
                    coordinator.log_was_cut_back(leader, broker.now)
                broker.partition_changed(leader)
                lost.append(Lost(topic, leader.index, end_offset, why))
    broker.purgatory.try_woken()
    for each in logs:
        each.loss_is_told()
    return lost


def take_offline(broker: Broker, lost: Iterable[Partition]) -> None:
    """The data folder of these replicas has failed: they are offline until the next start. Requests
    that wait for them are refused, and coordinators drop the state that they kept there."""
    for name, index in lost:
        topic = broker.topics.by_name.get(name)
        if topic is None:
            continue
        topic.offline |= {index}
        replica = topic.replicas[index] if topic.has(index) else None
        if replica is not None:
            topic.replicas[index] = None
            broker.replica_fetching.forget(replica)
            replica.go_offline()
    broker.coordinators_follow()
