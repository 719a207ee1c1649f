"""Moves of replicas between the data folders of this broker (AlterReplicaLogDirs, KIP-113).

A move copies the replica's log into the other folder (`TOPIC-PARTITION.UUID-future`) a piece at
each look, one move after the other, within `replica.alter.log.dirs.io.max.bytes.per.second`. When
the copy is whole and flushed, it takes the place of the log between two requests: clients see
nothing of it. A log that moves is not compacted. After a stop the next start makes the copy again.
A copy that cannot be made is given up with a log line; the replica stays where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.node.broker.broker import Broker
from headrace.node.replication.replica import PartitionReplica
from headrace.node.storage.checkpoints import Partition
from headrace.node.storage.durability.flush import FlushOfEverything
from headrace.node.storage.durability.folder_failures import raised_in
from headrace.node.storage.log_copy import LogCopy
from headrace.node.storage.log_folder import LogFolder
from headrace.wire.protocol.errors import KafkaError

log = logging.getLogger(__name__)

LOOK_MS = 50
# Copied in one look: 4 to 8 ms of the loop's time, 80 MB in a second.
MOST_BYTES_PER_LOOK = 4 << 20
BYTES_PER_STEP = 1 << 20
REMOVED_AFTER_MS = 60_000  # file.delete.delay.ms by default: readers of the file are done by then


@dataclass(slots=True)
class FolderMove:
    target: LogFolder
    copy: LogCopy
    flushed_beginning: int = 0  # a flush of the copy was asked for since it began this time
    flush_to: int = 0  # up to this offset


class FolderMoves:
    __slots__ = (
        "_broker",
        "_moves",
        "_flushes",
        "_unique",
        "_looked_ms",
        "_allowed",
        "done",
        "failed",
    )

    def __init__(self, broker: Broker, flushes: list[Any], unique: Callable[[], str]) -> None:
        """`flushes`: logs that want a flush are added there. `unique` returns 32 hexadecimal
        digits."""
        self._broker = broker
        self._moves: dict[Partition, FolderMove] = {}
        self._flushes = flushes
        self._unique = unique
        self._looked_ms = broker.now.monotonic_ms
        # Thousandths of bytes that may be copied; below 0 after a batch that was larger.
        self._allowed = 0
        self.done = 0
        self.failed = 0

    # Requests of operators

    def begin(self, replica: PartitionReplica, target: LogFolder) -> None:
        """Begin a move. Raises OSError if the copy cannot be made."""
        key = replica.topic, replica.index
        if key in target.futures:
            return
        self.cancel(key)
        target.create_future(
            *key,
            replica.topic_id,
            replica.log.settings,
            self._unique(),
            wall_ms=self._broker.now.wall_ms,
        )
        log.info("%s-%d moves from %s to %s", *key, replica.log.folder, target.path)

    def cancel(self, key: Partition) -> None:
        """End the move: the replica stays where it is, or was deleted."""
        self._moves.pop(key, None)
        for folder in self._broker.partitions.folders.online.values():
            if key in folder.futures:
                self._remove_later([folder.drop_future(*key)])

    # By time

    def look(self) -> None:
        """Called every LOOK_MS: copy some more."""
        now_ms = self._broker.now.monotonic_ms
        elapsed_ms, self._looked_ms = max(now_ms - self._looked_ms, 0), now_ms
        for target in list(self._broker.partitions.folders.online.values()):
            for key in list(target.futures):
                self._look_at(key, target, elapsed_ms)
                return  # one at a time, or all of them would be slow

    def _look_at(self, key: Partition, target: LogFolder, elapsed_ms: int) -> None:
        replica = self._replica(key)
        if replica is None or self._broker.partitions.folders.holder(*key) is target:
            self._give_up_if_gone(key)
            return
        if self._broker.partitions.compacting is replica.log:
            return  # that round of compaction ends first
        move = self._moves.get(key)
        if move is None or move.copy.source is not replica.log:
            move = FolderMove(target, LogCopy(replica.log, target.futures[key]))
            self._moves[key] = move
        try:
            self._go_on(key, move, replica, elapsed_ms)
        except (KafkaError, OSError) as problem:
            self.failed += 1
            if isinstance(problem, OSError):
                self._broker.partitions.failures.met(problem.filename, problem)
            log.error("%s-%d does not move to %s: %s", *key, target.path, problem)
            self._give_up(key)

    def _go_on(
        self, key: Partition, move: FolderMove, replica: PartitionReplica, elapsed_ms: int
    ) -> None:
        self._copy(move, elapsed_ms)
        source, copied = move.copy.source, move.copy.copy
        if not move.copy.is_whole or source.disk_failed:
            return
        if move.flushed_beginning != move.copy.beginnings:  # a new copy: flush most of it elsewhere
            move.flushed_beginning = move.copy.beginnings
            move.flush_to = copied.end_offset
            self._flushes.append(FlushOfEverything(copied))
        elif copied.recovery_point >= move.flush_to or not copied.size_bytes:
            with raised_in(source.folder):
                source.write_pending()
            if move.copy.is_whole:
                self._finish(key, move, replica)

    def _copy(self, move: FolderMove, elapsed_ms: int) -> None:
        rate = self._broker.replica_fetching.quotas.moves_limit()
        most = min(MOST_BYTES_PER_LOOK, rate) * 1_000
        self._allowed = min(self._allowed + rate * elapsed_ms, most)
        wall_ms = self._broker.now.wall_ms
        while self._allowed > 0 and not move.copy.is_whole:
            size = min(self._allowed // 1_000, BYTES_PER_STEP)
            copied, removed = move.copy.step(size, wall_ms=wall_ms)
            self._remove_later(removed)
            self._allowed -= copied * 1_000
            if not copied and not move.copy.is_whole:
                return  # nothing can be read just now

    def _finish(self, key: Partition, move: FolderMove, replica: PartitionReplica) -> None:
        folders = self._broker.partitions.folders
        holder = folders.holder(*key)
        assert holder is not None, "its replica is here"
        wall_ms = self._broker.now.wall_ms
        with raised_in(move.target.path):
            moved = move.target.promote_future(*key, replica.topic_id, replica.log, wall_ms=wall_ms)
        self._remove_later([self._leave(holder, key, move.target)])
        del self._moves[key]
        replica.adopt(moved)
        folders.moves += 1
        self.done += 1
        log.info("%s-%d has moved to %s", *key, move.target.path)
        self._broker.partition_changed(replica)
        if moved.start_offset > moved.segments.bases[0]:
            # Only the checkpoints record that, and those of this folder do not have it yet.
            self._broker.start_offsets.ask([moved])

    def _leave(self, holder: LogFolder, key: Partition, target: LogFolder) -> str:
        """Call when the log has its place in `target` too; returns the path to remove. If the log
        cannot leave its old folder, it stays there alone: a restart would find it twice, and would
        trust the one that was written last only once the metadata names it."""
        try:
            return holder.delete_moved(*key, self._unique())
        except OSError:
            self._remove_later([target.delete(*key, self._unique())])
            raise

    # The ends of moves that fail

    def _replica(self, key: Partition) -> PartitionReplica | None:
        topic = self._broker.topics.by_name.get(key[0])
        return topic.replicas[key[1]] if topic is not None and topic.has(key[1]) else None

    def _give_up_if_gone(self, key: Partition) -> None:
        """Cancel the move if the replica is gone. A starting node opens its replicas one by one."""
        if self._broker.is_member and not self._broker.changes and not self._broker.unopened:
            log.warning("%s-%d does not move: it is not on this broker", *key)
            self._give_up(key)

    def _give_up(self, key: Partition) -> None:
        try:
            self.cancel(key)
        except OSError as problem:
            self._broker.partitions.failures.met(problem.filename, problem)
            for folder in self._broker.partitions.folders.online.values():
                folder.futures.pop(key, None)

    def _remove_later(self, paths: list[str]) -> None:
        self._broker.partitions.remove_later(paths, REMOVED_AFTER_MS)
