"""Data folders for Prometheus: offline folders, their replicas, and free space.

Read on another thread than the loop's, so it copies what it walks through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from headrace.node.broker.broker import Broker
from headrace.node.broker.replicas.partitions import Partitions
from headrace.prometheus_text import Family, Sample


def folder_families(broker: Broker) -> Iterator[Family]:
    partitions, moves = broker.partitions, broker.folder_moves
    folders = partitions.folders
    for name, explanation, value in (
        ("headrace_folder_moves_total", "Replicas that changed their folder.", moves.done),
        ("headrace_folder_move_failures_total", "Moves that were given up.", moves.failed),
    ):
        yield Family(name, "counter", explanation, [({}, value)])
    offline = set(folders.offline)
    yield Family(
        "headrace_data_folder_offline",
        "gauge",
        "1: the folder has failed, and its partitions are offline.",
        [({"folder": path}, int(path in offline)) for path in folders.paths],
    )
    yield Family(
        "headrace_data_folder_refuses_appends",
        "gauge",
        "1: the disk is full or refuses appends for another reason; others lead what they can.",
        [({"folder": path}, int(path in broker.this.refusing)) for path in folders.paths],
    )
    yield Family(
        "headrace_offline_replicas",
        "gauge",
        "Partitions in data folders that have failed.",
        [({}, sum(len(topic.offline) for topic in list(broker.topics.by_name.values())))],
    )
    yield Family("headrace_disk_free_bytes", "gauge", "Left for us.", list(_free(partitions)))


def _free(partitions: Partitions) -> Iterator[Sample]:
    """A node with one folder does not name it."""
    for path in list(partitions.folders.online):
        with suppress(OSError):
            labels = {"folder": path} if len(partitions.folders.paths) > 1 else {}
            yield labels, partitions.space(path)[1]
