"""The periodic work of a node on its logs: retention, checkpoints, flushes that are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.node.broker.folders import folder_moves
from headrace.node.broker.folders.refusing_folders import RefusingFolders
from headrace.node.broker.replicas.partitions import Work
from headrace.node.storage.checkpoints import Partition
from headrace.node.storage.durability.durability import Submit
from headrace.node.storage.durability.flush import FlushOfEverything

if TYPE_CHECKING:
    from headrace.node.assembly.node import Node


class NodeUpkeep:
    __slots__ = ("_node",)

    def __init__(self, node: Node, submit: Submit) -> None:
        self._node = node
        folders = *node.partitions.folders.paths, node.settings.folder
        node.broker.refusing_folders = RefusingFolders(
            node.disk, node.now, folders, node.broker.this, submit
        )

    def timers(self) -> Iterator[tuple[int, Callable[[], None]]]:
        values = self._node.settings.values
        yield values["log.retention.check.interval.ms"], self._apply_retention
        yield values["log.flush.offset.checkpoint.interval.ms"], self._checkpoint
        often_ms = values["replica.high.watermark.checkpoint.interval.ms"]
        yield often_ms, self._checkpoint_high_watermarks
        expiry_ms = values["producer.id.expiration.check.interval.ms"]
        yield expiry_ms, self._node.partitions.expire_producers
        yield 1_000, self._every_second
        if len(self._node.partitions.folders.paths) > 1:
            yield folder_moves.LOOK_MS, self._node.broker.folder_moves.look

    def high_watermarks(self) -> dict[Partition, int]:
        return {
            (leader.topic, leader.index): leader.high_watermark
            for topic in self._node.broker.topics.by_name.values()
            for leader in topic.here()
        }

    def _in_background(self, works: list[Work]) -> None:
        for folder, work in works:
            self._node.durability.in_background(work, folder)

    def _apply_retention(self) -> None:
        node = self._node
        for topic in list(node.broker.topics.by_name.values()):
            for leader in topic.here():
                node.partitions.apply_retention(leader.log, leader.high_watermark)
        wait_ms = node.settings.values["headrace.stray.retention.ms"]
        self._in_background(node.partitions.stray_work(wait_ms))

    def _checkpoint(self) -> None:
        self._in_background(self._node.partitions.checkpoint_work(self.high_watermarks()))

    def _checkpoint_high_watermarks(self) -> None:
        """A node that is alone has all of its logs committed, and need not remember how far."""
        if len(self._node.broker.image.brokers) > 1:
            self._in_background(self._node.partitions.high_watermark_work(self.high_watermarks()))

    def _every_second(self) -> None:
        node = self._node
        node.controller.tick(node.now)
        if node.cleaner is not None:
            node.cleaner.tick()
        if node.scrubber is not None:
            node.scrubber.tick()
        node.durability.every_second()
        node.folder_watch.tell()
        node.broker.refusing_folders.look()
        unwritten = node.durability.unwritten
        if not unwritten.gathers and node.broker.disk_is_quiet():
            unwritten.gather_again()
        if node.broker.unopened and not node.broker.changes:
            node.broker.open_what_had_no_room()
        for found in node.partitions.due_flushes(node.now.monotonic_ms):
            node.durability.log_flushes.append(FlushOfEverything(found))
        self._in_background(node.partitions.due_work())
