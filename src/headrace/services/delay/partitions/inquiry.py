"""The questions about partitions that the group has given us, before their timelines can begin.

The committed offsets (asked for with require-stable, which waits for an open transaction of a
former owner), the start and end of the log, and the topic's id. All partitions in question are
asked for together, in a thread, so the loop never waits. Spoken with our own codecs: librdkafka
2.16 was seen to end the process (an assertion, a segmentation fault) when such answers fail.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from dataclasses import dataclass
from time import monotonic

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire, require_no_error
from headrace.services.delay.intake import Place
from headrace.services.delay.partitions.ends import (
    EARLIEST,
    LATEST,
    Address,
    any_broker,
    by_leader,
    find_topics,
    leaders_of,
    offsets_of,
)
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import find_coordinator, offset_fetch
from headrace.wire.protocol.uuids import to_text

log = logging.getLogger("headrace.delay")

ASK_AGAIN_S = 0.05
LONGEST_WAIT_S = 1.0  # while no broker answers, or none is allowed to
# A transaction of ours takes milliseconds; one that is open for longer has lost its owner.
STUCK_AFTER_S = 0.5
GROUP_KEY = 0  # FindCoordinator's type
FIRST_FIND_WITH_MANY = 4
FIRST_FETCH_OF_MANY = 8
FIRST_FETCH_WITH_IDS = 10


@dataclass(slots=True)
class Answer:
    offset: int | None  # the group's; None: never committed
    metadata: str | None
    log_start: int
    log_end: int  # of what is committed
    topic_id: str


@dataclass(slots=True)
class _Wanted:
    number: int  # of the question: a partition may come and go
    unstable_since: float | None = None


class Inquiry:
    """`want` some partitions, then look at `answers` now and then."""

    def __init__(self, connection: ClientSettings, group: str) -> None:
        self._connection = connection
        self._group = group
        self._wanted: dict[Place, _Wanted] = {}
        self._count = 0
        self._round: Round | None = None
        self._ask_at = 0.0
        self._ask_again_s = ASK_AGAIN_S

    def want(self, place: Place) -> None:
        self._count += 1
        self._ask_again_s = ASK_AGAIN_S
        self._wanted[place] = _Wanted(self._count)

    def forget(self, place: Place) -> None:
        self._wanted.pop(place, None)

    def stuck(self) -> list[Place]:
        """The partitions whose commit is held back by a transaction that stays open."""
        now = monotonic()
        return [
            place
            for place, wanted in self._wanted.items()
            if wanted.unstable_since is not None and now - wanted.unstable_since > STUCK_AFTER_S
        ]

    def answers(self) -> dict[Place, Answer]:
        """The new results; never waits."""
        if self._round is None:
            if self._wanted and monotonic() >= self._ask_at:
                asked = {place: wanted.number for place, wanted in self._wanted.items()}
                self._round = Round(self._connection, self._group, asked)
            return {}
        if self._round.is_alive():
            return {}
        done, self._round = self._round, None
        self._ask_at = monotonic() + self._ask_again_s
        if not done.answers and not done.unstable:
            self._ask_again_s = min(2 * self._ask_again_s, LONGEST_WAIT_S)
        known = {}
        for place, number in done.asked.items():
            wanted = self._wanted.get(place)
            if wanted is None or wanted.number != number:
                self._ask_at = 0.0
            elif place in done.answers:
                known[place] = done.answers[place]
                del self._wanted[place]
            elif place in done.unstable:
                wanted.unstable_since = wanted.unstable_since or monotonic()
        return known


class Round(threading.Thread):
    """One round of questions for some partitions; `stable` waits for open transactions."""

    def __init__(
        self,
        connection: ClientSettings,
        group: str,
        asked: dict[Place, int],
        *,
        stable: bool = True,
    ) -> None:
        super().__init__(name="headrace-delay-inquiry", daemon=True)
        self.asked = asked
        self.answers: dict[Place, Answer] = {}
        self.unstable: set[Place] = set()
        self._connection = connection
        self._group = group
        self._stable = stable
        self._ids: dict[str, bytes] = {}
        self._leaders: dict[Place, Address] = {}
        self.start()

    def run(self) -> None:
        try:
            with any_broker(self._connection) as wire:
                topics = find_topics(wire, {topic for topic, _ in self.asked})
                self._ids = {topic.name or "": topic.topic_id for topic in topics.topics}
                self._leaders = leaders_of(topics)
                coordinator = self._find_coordinator(wire)
            with Wire(self._connection, coordinator) as wire:
                committed = self._fetch(wire)
            starts, ends = self._offsets(EARLIEST), self._offsets(LATEST)
        except ClientError as failure:
            log.info("asking about partitions: %s", failure)
            return
        for place, (offset, said) in committed.items():
            if place in starts and place in ends:
                topic_id = to_text(self._ids[place[0]])
                self.answers[place] = Answer(offset, said, starts[place], ends[place], topic_id)

    def _find_coordinator(self, wire: Wire) -> Address:
        request = find_coordinator.FindCoordinatorRequest(self._group, GROUP_KEY, [self._group])
        many = wire.version_of(find_coordinator) >= FIRST_FIND_WITH_MANY
        answer = wire.ask(find_coordinator, request)
        found = answer.coordinators[0] if many else answer
        require_no_error(found.error_code)
        return found.host, found.port

    def _fetch(self, wire: Wire) -> dict[Place, tuple[int | None, str | None]]:
        version = wire.version_of(offset_fetch)
        if version < FIRST_FETCH_OF_MANY:
            raise ClientError(
                "This cluster is too old: the delay service needs Kafka 3.0 or newer."
            )
        partitions: dict[str, list[int]] = defaultdict(list)
        for topic, partition in self.asked:
            if topic in self._ids:
                partitions[topic].append(partition)
        topics = [
            offset_fetch.OffsetFetchRequestTopics(name, self._ids[name], numbers)
            for name, numbers in partitions.items()
        ]
        group = offset_fetch.OffsetFetchRequestGroup(self._group, topics=topics)
        answer = wire.ask(
            offset_fetch,
            offset_fetch.OffsetFetchRequest(groups=[group], require_stable=self._stable),
        )
        (found,) = answer.groups
        require_no_error(found.error_code)
        names = {id_: name for name, id_ in self._ids.items()}
        committed: dict[Place, tuple[int | None, str | None]] = {}
        for topic in found.topics:
            name = names[topic.topic_id] if version >= FIRST_FETCH_WITH_IDS else topic.name
            for each in topic.partitions:
                place = (name, each.partition_index)
                if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    self.unstable.add(place)
                elif each.error_code == ErrorCode.NONE:
                    offset = each.committed_offset
                    # confluent-kafka sends the NUL at the end of its string as a part of it.
                    said = (each.metadata or "").rstrip("\0")
                    committed[place] = (offset if offset >= 0 else None), said
        return committed

    def _offsets(self, which: int) -> dict[Place, int]:
        found = {}
        for address, asked in by_leader(self.asked, self._leaders).items():
            with Wire(self._connection, address) as wire:
                found.update(offsets_of(wire, asked, which))
        return found
