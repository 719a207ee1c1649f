"""Reading the companions: which partitions are ours, and their records.

Two clients of librdkafka, both used by the loop's thread alone. The member belongs to the group
(static membership, classic protocol, so that a commit is fenced by the group's generation), keeps
what it is given paused and reads nothing. The reader is in no group and reads each partition from
where its state ends, which may be long before the group's offset, or again from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from operator import methodcaller
from time import monotonic
from typing import Any

from headrace.client.connection import ClientSettings, Setting, program_settings
from headrace.client.intake import Arrived, GroupMember, Intake, RawRecord
from headrace.client.records import TopicPartition
from headrace.wire.contract.delay_instructions import UNREADABLE, RecordFields
from headrace.wire.contract.delay_topics import REGISTRY

log = logging.getLogger("headrace.delay")

Place = tuple[str, int]  # companion, partition

SESSION_MS = 10_000
HEARTBEAT_MS = 1_000
# Two processes of one name fence each other as fast as they join; brokers are not killed that
# often.
NAMESAKE_S = 60.0
FENCED_BY_ITSELF = 5
# New partitions of a companion are noticed by the member's own look at the metadata.
METADATA_MS = 2_000
# A partition that is added waits for the fetch that is under way.
FETCH_WAIT_MS = 50
FETCHED_RECORDS = 20_000
FETCHED_KIB = 16 * 1024
RECONNECT: dict[str, Setting] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "metadata.recovery.strategy": "none",  # see deliverer.py
}


class Member:
    """The member of the group. Call `poll` often; it calls `given` and `taken`.

    A member may be fenced without another process of its name. A broker that is killed may have
    sent it a new member id without writing it down, or may read a request to join after the one
    that was sent later. So the member joins again; a member that is fenced again and again has a
    namesake.
    """

    def __init__(
        self,
        connection: ClientSettings,
        group: str,
        instance: str,
        *,
        given: Callable[[list[Place]], None],
        taken: Callable[[list[Place]], None],
    ) -> None:
        settings = program_settings(
            connection,
            {
                "group.id": group,
                "group.instance.id": instance,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "topic.metadata.refresh.interval.ms": METADATA_MS,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                **RECONNECT,
            },
        )
        settings["error_cb"] = lambda _: None  # librdkafka's log has it
        self._settings = settings
        self._intake = Intake(settings)
        self._given, self._taken = given, taken
        self._held: set[Place] = set()
        self._fenced_s: list[float] = []  # monotonic
        self._followed: list[str] = []
        self._with_registry = False

    def follow(self, companions: Iterable[str]) -> None:
        wanted = sorted(companions)
        if wanted != self._followed:
            self._followed = wanted
            self._subscribe()

    def rejoin(self) -> None:
        """Makes the group assign its partitions again.

        A static member that rejoins gets the partitions that it had, whatever it subscribes to by
        then (KIP-345). A coordinator reacts to a change of the subscription: the registry is added
        to it, or removed, and the registry's partition needs no work.
        """
        self._with_registry = not self._with_registry
        self._subscribe()

    def _subscribe(self) -> None:
        if not self._followed:
            self._intake.unfollow()
            return
        self._intake.follow(
            [*self._followed, *([REGISTRY] if self._with_registry else [])],
            given=self._assigned,
            taken=self._revoked,
            lost=self._revoked,
        )

    def poll(self) -> None:
        for _, fault in self._intake.read(0, 1).faults:
            if fault.is_fatal:
                self._fenced(str(fault))

    def _fenced(self, said: str) -> None:
        now_s = monotonic()
        self._fenced_s = [at_s for at_s in self._fenced_s if now_s - at_s < NAMESAKE_S]
        if len(self._fenced_s) >= FENCED_BY_ITSELF:
            raise Fenced(said)
        self._fenced_s.append(now_s)
        log.warning("the group has another member of our name: joining again (%s)", said)
        before, self._intake = self._intake, Intake(self._settings)
        before.close()
        held, self._held = sorted(self._held), set()
        self._taken(held)
        self._subscribe()

    def metadata(self) -> GroupMember:
        """The group metadata by which the coordinator checks a commit."""
        return self._intake.group_member()

    def close(self) -> None:
        self._intake.close()

    def _assigned(self, intake: Intake, places: list[TopicPartition]) -> None:
        if intake is not self._intake:
            return  # its last words
        intake.add(dict.fromkeys(places, 0))
        if places:
            intake.pause(places)
        given = _companions(places)
        self._held.update(given)
        self._given(given)

    def _revoked(self, intake: Intake, places: list[TopicPartition]) -> None:
        if intake is self._intake:
            taken = _companions(places)
            self._held.difference_update(taken)
            self._taken(taken)


def _companions(places: list[TopicPartition]) -> list[Place]:
    return [place for place in places if place.topic != REGISTRY]


class Fenced(Exception):
    """Another process has our instance name."""


class Reader:
    """The records' side."""

    def __init__(self, connection: ClientSettings) -> None:
        settings = program_settings(
            connection,
            {
                "group.id": "headrace-delay-reader",  # librdkafka wants one; it joins nothing
                "partition.assignment.strategy": "cooperative-sticky",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                # A place that was deleted before us means that our state is not complete.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "fetch.queue.backoff.ms": 2,
                "queued.min.messages": FETCHED_RECORDS,
                "queued.max.messages.kbytes": FETCHED_KIB,
                **RECONNECT,
            },
        )
        settings["error_cb"] = lambda _: None
        self._intake = Intake(settings)
        self._read: set[Place] = set()
        self._paused: set[Place] = set()

    def read(self, place: Place, offset: int) -> None:
        """Reads a partition from there on, also if it is being read from elsewhere."""
        self.leave(place)
        self._intake.add({TopicPartition(*place): offset})
        self._read.add(place)

    def leave(self, place: Place) -> None:
        self.resume(place)  # librdkafka would keep it paused, also when it is read again
        if place in self._read:
            self._read.discard(place)
            self._intake.drop([place])

    def pause(self, place: Place) -> None:
        if place in self._read and place not in self._paused:
            self._paused.add(place)
            self._intake.pause([place])

    def resume(self, place: Place) -> None:
        if place in self._paused:
            self._paused.discard(place)
            self._intake.resume([place])

    def take(self, wait_s: float, most: int) -> Taken:
        """Returns the records that have arrived; waits until there is one, not until there are
        many."""
        return Taken(self._intake.read(wait_s, most))

    def end(self, place: Place) -> int:
        """Returns where the log ended at the last fetch, as far as that is known."""
        return self._intake.known_end(place)

    def close(self) -> None:
        self._intake.close()


# confluent-kafka 2.x gives a result and leaves an exception behind for a name that is not UTF-8. A
# plain call would not always see it, and a later line would raise; this one always does.
_headers = methodcaller("headers")


def headers_of(message: RawRecord) -> Any:
    """Returns the record's headers, or UNREADABLE if a name is not UTF-8."""
    try:
        return _headers(message)
    except (UnicodeDecodeError, SystemError):  # the latter because of the former
        return UNREADABLE


class Taken:
    """Records by partition, ends that were reached, and partitions that cannot be read on."""

    __slots__ = ("count", "ends", "gone", "records")

    def __init__(self, arrived: Arrived) -> None:
        self.records: dict[Place, list[RecordFields]] = {}
        self.ends: Mapping[TopicPartition, int] = arrived.ends
        self.gone: dict[Place, str] = {}
        self.count = 0
        for place, stretch in arrived.stretches:
            self.count += len(stretch)
            append: Callable[[RecordFields], None] = self.records.setdefault(place, []).append
            for record in stretch:
                append(
                    (  # type: ignore[arg-type]
                        record.offset(),
                        record.timestamp()[1],
                        record.key(),
                        record.value(),
                        headers_of(record),
                    )
                )
        for at, fault in arrived.faults:
            if at is None:
                log.warning("reading: %s", fault.named)
            elif not fault.may_call_again:
                self.gone[at] = str(fault)
