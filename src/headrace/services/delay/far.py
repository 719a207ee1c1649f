"""The far topic: read for partitions whose store is lost; the intake is freed after a move.

Reading goes to the end as it was, open transactions included, when the group's offset was known; it
takes some records per call, so that other partitions flow meanwhile. The timelines keep on disk
what they are given; here is never more than a call takes. Deleting records of the intake is asked
for and not waited for: what is not deleted now goes with the next move.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from zlib import crc32

from headrace.client.admin.requests import Pending, Requests
from headrace.client.connection import ClientSettings, program_settings
from headrace.client.faults import Fault
from headrace.client.intake import BEGINNING, Intake, RawRecord
from headrace.client.records import TopicPartition
from headrace.services.delay.intake import FETCHED_KIB, RECONNECT, Place, headers_of
from headrace.services.delay.partitions.owned import Owned
from headrace.services.delay.timeline.far_records import record_id_of
from headrace.services.delay.timeline.timeline import Timeline
from headrace.wire.contract.delay_topics import FAR
from headrace.wire.contract.own_records import OwnRecords

log = logging.getLogger("headrace.delay")

ANSWER_WITHIN_S = 10.0
RECORDS_PER_CALL = 5_000

Headers = list[tuple[str, bytes | None]]


def far_partition(place: Place, partitions: int) -> int:
    """All records of one place go into one partition of the far topic."""
    return crc32(f"{place[0]}/{place[1]}".encode()) % partitions


class FarReader:
    """The far topic from its beginning to its end, for some timelines."""

    def __init__(self, connection: ClientSettings, timelines: dict[Place, Timeline]) -> None:
        self.timelines = timelines
        settings = program_settings(
            connection,
            {
                "group.id": "headrace-delay-far",  # librdkafka wants one; it joins nothing
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "fetch.queue.backoff.ms": 2,
                "queued.max.messages.kbytes": FETCHED_KIB,
                **RECONNECT,
            },
        )
        self._intake = Intake(settings)
        self._ends: dict[int, int] | None = None
        self._told: set[str] = set()
        self._own = OwnRecords(FAR, log)

    def read(self) -> bool:
        """Reads some more. Returns whether that was all."""
        try:
            if self._ends is None:
                self._ends = self._find_ends()
        except Fault as fault:
            self._tell(str(fault))
            return False
        if self._ends:
            arrived = self._intake.read(0, RECORDS_PER_CALL)
            for _, records in arrived.stretches:
                for record in records:
                    if (key := record.key()) is not None:
                        self._give(key, record)
            for (_, partition), end in arrived.ends.items():
                # The end of what is committed; more may follow below the end that is waited for.
                if end >= self._ends.get(partition, 0):
                    self._ends.pop(partition, None)
            for _, trouble in arrived.faults:
                self._tell(str(trouble))
        return not self._ends

    def close(self) -> None:
        self._intake.close()

    def _find_ends(self) -> dict[int, int]:
        # The partition existed when something was moved to it. To continue without it would lose
        # that.
        partitions = self._intake.partitions_of(FAR, ANSWER_WITHIN_S)
        wanted = {far_partition(place, len(partitions)) for place in self.timelines}
        ends = {}
        for partition in partitions:
            start, end = self._intake.bounds(TopicPartition(FAR, partition), ANSWER_WITHIN_S)
            if end > start and (partition in wanted or len(partitions) > 1):
                ends[partition] = end
        self._intake.assign({TopicPartition(FAR, partition): BEGINNING for partition in ends})
        return ends

    def _give(self, key: bytes, record: RawRecord) -> None:
        value = record.value()
        said = self._own.read(
            _record_id,
            key,
            value,
            partition=record.partition() or 0,
            offset=record.offset() or 0,
        )
        if said is None:
            return
        topic, partition, offset = said
        timeline = self.timelines.get((topic, partition))
        if timeline is None:
            return
        fault = timeline.load_far(key, value, headers_of(record) or [])
        if fault is not None:
            log.warning("%s-%d: offset %d is rejected: %s", topic, partition, offset, fault)

    def _tell(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            log.warning("the far topic cannot be read yet: %s", why)


def _record_id(key: bytes | None, value: bytes | None) -> tuple[str, int, int]:
    return record_id_of(key or b"")


class FarLoading:
    """One reading of the far topic at a time, for all partitions that need it by then."""

    def __init__(self, connection: ClientSettings) -> None:
        self._connection = connection
        self._reader: FarReader | None = None

    def look(self, owned: Mapping[Place, Owned], stuck: Container[Place]) -> list[Owned]:
        """Reads on. Returns the timelines that are complete now; waits first while answers about
        others are pending.

        A timeline that was thrown away meanwhile must not write to its store any more.
        """
        if self._reader is None:
            waiting = {o.place: o.timeline for o in owned.values() if o.loads_far and o.timeline}
            if not waiting or any(o.asked and o.place not in stuck for o in owned.values()):
                return []
            self._reader = FarReader(self._connection, waiting)
        reader = self._reader
        reader.timelines = {
            place: timeline
            for place, timeline in reader.timelines.items()
            if place in owned and owned[place].timeline is timeline
        }
        if reader.timelines and not reader.read():
            return []
        self.close()
        loaded = [owned[place] for place in reader.timelines]
        for each in loaded:
            assert each.timeline is not None
            each.timeline.far_loaded()
            each.loads_far = False
        return loaded

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class Trimming:
    """Frees the intake below the moved records."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._asked: dict[Place, Pending[None]] = {}
        self._wanted: dict[Place, int] = {}

    def trim(self, place: Place, offset: int) -> None:
        self._wanted[place] = offset

    def look(self) -> None:
        """Sends the delete requests that are due, one per partition at a time."""
        for place, asked in list(self._asked.items()):
            if asked.is_done:
                del self._asked[place]
                try:
                    asked.result()
                except Fault as fault:
                    log.warning("records of %s-%d cannot be deleted: %s", *place, fault.named)
        for place in [place for place in self._wanted if place not in self._asked]:
            at = TopicPartition(*place)
            before = {at: self._wanted.pop(place)}
            self._asked[place] = self._requests.delete_records(before, ANSWER_WITHIN_S)[at]
