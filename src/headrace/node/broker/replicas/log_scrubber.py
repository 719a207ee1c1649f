"""The scrub on the loop: chooses the next closed segments to read, and reports damage.

A pass reads every closed, flushed segment of this broker once, topic by topic, in a process of its
own (`Runner`), at most `headrace.scrub.io.max.bytes.per.second`. The next pass begins
`headrace.scrub.interval.ms` after the last one began. `scrub-checkpoint` in the data folder
remembers how far a pass is: a node that is often restarted reaches its last topics too. Damage is
logged, counted, recorded in `damaged-ranges` and refused to readers; a follower fetches it again
from its leader (`in_sync_upkeep.py` looks for it). Not read: active segments, whose end every start
reads; the metadata log; the indexes, which are checked when they are looked up.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from headrace.environment import Disk, Now
from headrace.node.broker.replicas.topics import Topics
from headrace.node.replication.replica import PartitionReplica
from headrace.node.storage.recovery.damage import save_ranges
from headrace.node.storage.recovery.scrub import ClosedSegment
from headrace.node.storage.segments.batch_scan import DamagedRange
from headrace.node.storage.segments.segment import Segment

log = logging.getLogger(__name__)

CHECKPOINT = "scrub-checkpoint"
# A node that has just started is busy, and so is its machine.
FIRST_LOOK_MS = 60_000
# A process takes 50 ms of processor time to start: a job is long, not endless.
SEGMENTS_PER_JOB = 1_000
BYTES_PER_JOB = 1 << 30
NEVER = -1


class Reports(Protocol):
    """The events of a runner, on the loop; segments are named by their number in the job."""

    def read(self, number: int, found: list[DamagedRange]) -> None: ...

    def skipped(self, number: int, why: str) -> None: ...

    def finished(self) -> None: ...

    def failed(self, reason: str) -> None: ...


class Runner(Protocol):
    """Reads segments; one job at a time."""

    def start(
        self, job: list[ClosedSegment], bytes_per_second: float, reports: Reports
    ) -> None: ...

    def stop(self) -> None:
        """Cancel the job; it reports nothing more."""
        ...


class ScrubPosition(NamedTuple):
    """How far a pass is: everything before this position was read."""

    topic: str
    partition: int
    base_offset: int


class Candidate(NamedTuple):
    replica: PartitionReplica
    segment: Segment
    size: int


class LogScrubber:
    """The numbers for the metrics are public: they count all passes since the start."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        topics: Topics,
        now: Now,
        runner: Runner,
        *,
        values: Callable[[], Any],
        in_background: Callable[[Callable[[], None], str | None], None],
    ) -> None:
        self.passes = 0
        self.segments_read = 0
        self.bytes_read = 0
        self.damaged_ranges = 0
        self.failures = 0
        self.last_pass_ms = 0  # wall clock, when a whole pass had ended; 0: none since the start
        self._disk = disk
        self._topics = topics
        self._now = now
        self._runner = runner
        self._values = values
        self._in_background = in_background
        self._path = f"{folder}/{CHECKPOINT}"
        self._began_ms, self._position = self._read_checkpoint()  # no place: it is over
        self._look_at_ms = now.monotonic_ms + FIRST_LOOK_MS
        self._read_before_pass = 0
        self._job: list[Candidate] | None = None
        self._stopped = False

    def tick(self) -> None:
        """Called every second: begin a job if a pass is under way or due."""
        if self._job is not None or self._stopped or self._now.monotonic_ms < self._look_at_ms:
            return
        interval_ms = self._values()["headrace.scrub.interval.ms"]
        if interval_ms == NEVER:
            return
        if self._position is None:
            since_ms = self._now.wall_ms - self._began_ms
            if 0 <= since_ms < interval_ms:  # a time in the future comes from a wrong clock
                return
            self._began_ms, self._position = self._now.wall_ms, ScrubPosition("", 0, 0)
            self._read_before_pass = self.segments_read
        self._begin_job(self._position)

    def stop(self) -> None:
        self._stopped = True
        self._runner.stop()

    # --- which segments

    def _begin_job(self, position: ScrubPosition) -> None:
        job: list[Candidate] = []
        size = 0
        for candidate in self._closed_from(position):
            if job and (len(job) >= SEGMENTS_PER_JOB or size + candidate.size > BYTES_PER_JOB):
                break
            job.append(candidate)
            size += candidate.size
        if not job:
            self._end_pass()
            return
        self._job = job
        try:
            self._runner.start(
                [
                    ClosedSegment(
                        each.segment.path,
                        each.segment.base_offset,
                        base_behind(each.replica, each.segment),
                        each.size,
                        each.segment.gapless,
                    )
                    for each in job
                ],
                self._values()["headrace.scrub.io.max.bytes.per.second"],
                self,
            )
        except OSError as problem:
            self.failed(f"it could not be begun: {problem.strerror}")

    def _closed_from(self, position: ScrubPosition) -> Iterator[Candidate]:
        """Yields closed segments that were flushed, in the order of a pass. Bytes that are not
        flushed are still only in memory, and an unclean start reads them again."""
        names = sorted(self._topics.by_name)
        for name in names[bisect_left(names, position.topic) :]:
            for replica in self._topics.by_name[name].here():
                if name == position.topic and replica.index < position.partition:
                    continue
                is_begun = (name, replica.index) == (position.topic, position.partition)
                found, bases = replica.log.segments.items, replica.log.segments.bases
                for segment, next_base in zip(found, bases[1:], strict=False):
                    if next_base > replica.log.recovery_point:
                        break
                    if not is_begun or segment.base_offset >= position.base_offset:
                        yield Candidate(replica, segment, segment.size)

    # --- results

    def read(self, number: int, found: list[DamagedRange]) -> None:
        """The whole segment was read."""
        assert self._job is not None, "reports come from a job"
        candidate = self._job[number]
        self.segments_read += 1
        self.bytes_read += candidate.size
        self._pass_by(candidate)
        if found and is_unchanged(candidate):
            self._note(candidate, found)

    def _note(self, candidate: Candidate, found: list[DamagedRange]) -> None:
        replica = candidate.replica
        new = replica.log.segments.note_damage(candidate.segment, found)
        self.damaged_ranges += new
        if new:
            self._in_background(self._damage_work(replica), replica.log.folder)

    def skipped(self, number: int, why: str) -> None:
        """The segment was removed, compacted or cut back meanwhile, or the disk refused to read it
        (`why`). If a file is missing that the log has not removed, all of it counts as damage."""
        assert self._job is not None, "reports come from a job"
        candidate = self._job[number]
        self._pass_by(candidate)
        if not why and is_unchanged(candidate) and not self._disk.exists(candidate.segment.path):
            base, behind = candidate.segment.base_offset, base_behind(*candidate[:2])
            self._note(
                candidate, [DamagedRange(0, candidate.size, base, behind, "the file is missing")]
            )
        if why:
            self.failures += 1
            log.error("the scrub could not read a segment: %s", why)

    def finished(self) -> None:
        self._job = None
        self._in_background(self._checkpoint_work(), None)
        self.tick()

    def failed(self, reason: str) -> None:
        """The job failed; the next one continues after what was read, after a while."""
        self._job = None
        self.failures += 1
        self._look_at_ms = self._now.monotonic_ms + FIRST_LOOK_MS
        log.warning("the scrub of closed segments was interrupted: %s", reason)

    def _pass_by(self, candidate: Candidate) -> None:
        replica = candidate.replica
        self._position = ScrubPosition(
            replica.topic, replica.index, candidate.segment.base_offset + 1
        )

    def _end_pass(self) -> None:
        self._position = None
        self.passes += 1
        self.last_pass_ms = self._now.wall_ms
        self._in_background(self._checkpoint_work(), None)
        if self.segments_read == self._read_before_pass:
            return  # without closed segments, nothing is logged
        log.info(
            "the scrub has read all closed segments; since the start %d, %d bytes, %d damaged",
            self.segments_read, self.bytes_read, self.damaged_ranges,
        )  # fmt: skip

    def _damage_work(self, replica: PartitionReplica) -> Callable[[], None]:
        folder, found = replica.log.folder, replica.log.segments.damage()

        def write() -> None:
            with suppress(FileNotFoundError):  # the topic was deleted meanwhile
                save_ranges(self._disk, folder, found)

        return write

    # --- how far a pass is

    def _read_checkpoint(self) -> tuple[int, ScrubPosition | None]:
        """A file that is missing or damaged costs one pass, nothing else."""
        try:
            version, began, *rest = self._disk.read_file(self._path).decode().split()
            if version == "0" and rest:
                topic, index, base_offset = rest
                return int(began), ScrubPosition(topic, int(index), int(base_offset))
            return (int(began) if version == "0" else 0), None
        except (FileNotFoundError, ValueError):
            return 0, None

    def _checkpoint_work(self) -> Callable[[], None]:
        position = () if self._position is None else self._position
        text = " ".join(map(str, (0, self._began_ms, *position))) + "\n"

        def write() -> None:
            self._disk.write_file(self._path, [text.encode()], flush=False)

        return write


def base_behind(replica: PartitionReplica, segment: Segment) -> int:
    found = replica.log.segments
    return found.bases[found.number_at(segment.base_offset) + 1]


def is_unchanged(candidate: Candidate) -> bool:
    """Returns whether the log still has this segment, closed: compaction may have replaced it, a
    follower may have cut its log back, or the topic may be deleted."""
    found, segment = candidate.replica.log, candidate.segment
    there = found.segments.items[found.segments.number_at(segment.base_offset)]
    return there is segment and there is not found.active and segment.size == candidate.size
