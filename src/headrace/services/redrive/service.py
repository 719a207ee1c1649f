"""Dead letters of a cluster: list them, send them again, discard them.

One redrive of a topic runs at a time: its transactional id is fixed, so a second one takes over
and the first ends with `Fenced`. Letters are sent in transactions of a few hundred, each with its
journal entries; a crash leaves whole transactions only, and the same command continues from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from headrace.app.names import escaped
from headrace.client.admin.own_topics import OwnTopic, ensure_own
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.producer.producer import Producer
from headrace.client.records import Outgoing
from headrace.services.redrive.letters import (
    DeadLetter,
    Selection,
    dead_letter,
    without_copies,
)
from headrace.services.redrive.redriven_letter import MOST_REDRIVES, NotRedrivable, again
from headrace.services.redrive.settled import (
    DISCARDED,
    REDRIVEN,
    SETTLED_SETTINGS,
    SETTLED_TOPIC,
    Settled,
)
from headrace.services.redrive.settled_letters import SettledLetters, all_settled
from headrace.wire.contract.companions import DEAD_SUFFIX

LETTERS_PER_TRANSACTION = 500
MOST_NAMED = 10

Edit = Callable[[DeadLetter], bytes | None]


class NotADeadLetterTopic(ClientError):
    """Its records are ordinary ones, which must not be sent again or discarded as letters."""


@dataclass(slots=True)
class DeadTopic:
    """One dead-letter topic at a glance."""

    topic: str
    origin_topic: str | None
    group: str | None
    waiting: int
    settled: int
    oldest_ms: int | None  # when the oldest that waits was parked


@dataclass(slots=True)
class Step:
    """One letter of a redrive: done, or the reason why not."""

    letter: DeadLetter
    settled: Settled | None = None
    record: Outgoing[bytes, bytes] | None = None  # what is sent again
    refusal: str = ""


class DeadLetters:
    def __init__(
        self,
        connection: ClientSettings,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._sleep = sleep

    # ---- looking

    def topics(self) -> list[DeadTopic]:
        settled = all_settled(self._connection)
        found = Topics(self._connection).all()
        return [
            self._summary(each.name, settled) for each in found if each.name.endswith(DEAD_SUFFIX)
        ]

    def _summary(self, topic: str, settled: SettledLetters) -> DeadTopic:
        summary = DeadTopic(topic, None, None, waiting=0, settled=0, oldest_ms=None)
        for letter in self._all(topic):
            summary.origin_topic = summary.origin_topic or letter.origin_topic
            summary.group = summary.group or letter.group
            if settled.of(letter) is not None:
                summary.settled += 1
                continue
            summary.waiting += 1
            if letter.parked_at_ms is not None:
                oldest = summary.oldest_ms
                summary.oldest_ms = min(oldest or letter.parked_at_ms, letter.parked_at_ms)
        return summary

    def letters(
        self, topic: str, selection: Selection, *, also_settled: bool = False
    ) -> Iterator[tuple[DeadLetter, Settled | None]]:
        """The chosen letters, oldest first within a partition, with their outcomes."""
        self._require(topic)
        settled = all_settled(self._connection)
        for letter in self._all(topic):
            entry = settled.of(letter)
            if (entry is None or also_settled) and selection.accepts(letter):
                yield letter, entry

    def _require(self, topic: str) -> None:
        """Refuses a topic that is missing or has no dead letters, and names those that have."""
        there = [each.name for each in Topics(self._connection).all()]
        if topic in there and topic.endswith(DEAD_SUFFIX):
            return
        dead = [name for name in there if name.endswith(DEAD_SUFFIX)]
        of_topic = [name for name in dead if name.startswith(f"{topic}.")]
        known = ", ".join((of_topic or dead)[:MOST_NAMED])
        advice = f"Dead letters are in {known}." if known else "No group has dead letters yet."
        if topic in there:
            raise NotADeadLetterTopic(
                f"{topic} is not a dead-letter topic: their names end in {DEAD_SUFFIX}. {advice}"
            )
        raise NoSuchTopic(f"There is no topic {topic}. {advice}")

    def _all(self, topic: str) -> Iterator[DeadLetter]:
        with closing(RecordReader(self._connection, topic)) as reader:
            yield from without_copies(dead_letter(record) for record in reader.records())

    # ---- doing

    def redrive(
        self,
        topic: str,
        selection: Selection,
        *,
        by: str,
        reason: str = "",
        rate: float | None = None,
        most_redrives: int = MOST_REDRIVES,
        edit: Edit | None = None,
        limit: int | None = None,
    ) -> Iterator[Step]:
        """Send letters again, `rate` per second at most; yields each when it is settled."""
        partitions = {each.name: each.partitions for each in Topics(self._connection).all()}

        def plan(letter: DeadLetter) -> Step:
            value = letter.value if edit is None else edit(letter)
            try:
                record = again(letter, value=value, most_redrives=most_redrives)
                _require_room(record, partitions)
            except NotRedrivable as refusal:
                return Step(letter, refusal=str(refusal))
            entry = self._entry(letter, REDRIVEN, by, reason)
            entry.sent_to = f"{record.topic}/{record.partition}"
            entry.edited = value != letter.value
            return Step(letter, entry, record)

        size = 1 if edit is not None else _per_transaction(rate)
        yield from self._settle(topic, selection, plan, size=size, rate=rate, limit=limit)

    def discard(
        self,
        topic: str,
        selection: Selection,
        *,
        by: str,
        reason: str = "",
        limit: int | None = None,
    ) -> Iterator[Step]:
        """Discards letters: they are no longer listed, and disappear when their topic's retention
        ends."""

        def plan(letter: DeadLetter) -> Step:
            return Step(letter, self._entry(letter, DISCARDED, by, reason))

        yield from self._settle(
            topic, selection, plan, size=LETTERS_PER_TRANSACTION, rate=None, limit=limit
        )

    def _entry(self, letter: DeadLetter, action: str, by: str, reason: str) -> Settled:
        return Settled(letter.name, letter.parked_at_ms, action, by, self._now_ms(), reason)

    def _settle(
        self,
        topic: str,
        selection: Selection,
        plan: Callable[[DeadLetter], Step],
        *,
        size: int,
        rate: float | None,
        limit: int | None,
    ) -> Iterator[Step]:
        self._require_settled_topic()
        with Producer(
            self._connection, transactional_id=f"headrace-redrive-{escaped(topic)}"
        ) as producer:
            # First fence any other process that resends, then read what is settled: nothing happens
            # in between.
            producer.prepare_transactions()
            waiting = (letter for letter, _ in self.letters(topic, selection))
            for batch in _batches(waiting, size, limit):
                steps = [plan(letter) for letter in batch]  # this may wait for a user
                with producer.transaction():
                    for step in steps:
                        _send(step, producer)
                yield from steps
                if rate is not None:
                    self._sleep(len(batch) / rate)

    def _require_settled_topic(self) -> None:
        ensure_own(Topics(self._connection), OwnTopic(SETTLED_TOPIC, 1, SETTLED_SETTINGS))


def _send(step: Step, producer: Producer) -> None:
    if step.record is not None:
        producer.send_one_way(
            step.record.topic,
            step.record.value,
            key=step.record.key,
            headers=step.record.headers,
            partition=step.record.partition,
        )
    if step.settled is not None:
        producer.send_one_way(SETTLED_TOPIC, step.settled.value, key=step.settled.key)


def _require_room(record: Outgoing[bytes, bytes], partitions: dict[str, int]) -> None:
    if record.topic not in partitions:
        raise NotRedrivable(
            f"There is no topic {record.topic}, from which the group reads what is sent again; "
            "its app makes it when it starts; a share group without an app needs it with as many "
            "partitions as the topic of the records, and reads it like that."
        )
    if record.partition is None or record.partition >= partitions[record.topic]:
        raise NotRedrivable(f"Topic {record.topic} has no partition {record.partition}.")


def _per_transaction(rate: float | None) -> int:
    """A slow redrive has small transactions, so that letters do not come in bursts."""
    if rate is None:
        return LETTERS_PER_TRANSACTION
    return max(1, min(LETTERS_PER_TRANSACTION, round(rate / 5)))


def _batches(
    letters: Iterator[DeadLetter], size: int, limit: int | None
) -> Iterator[list[DeadLetter]]:
    batch: list[DeadLetter] = []
    for number, letter in enumerate(letters):
        if limit is not None and number >= limit:
            break
        batch.append(letter)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
