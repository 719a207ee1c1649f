"""All that topics contain about one message: the record, its companions, and how far groups have
read.

Bounded: the topic and its companions alone (`wire/contract/companions.py`), all partitions of small
topics and one of large ones, from a moment on, with limits on records, bytes and seconds for each.
The answer includes what was searched and what was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field

from headrace.app import headers as app_headers
from headrace.app.names import unescaped
from headrace.client.admin.group_lags import GroupLags
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.lookup.record_pages import Bounds, Browser, Page, Seen
from headrace.client.records import Record
from headrace.console.access.held_connection import HeldClientSettings
from headrace.console.life.identity import Identity, RecordId, texts
from headrace.console.life.steps import (
    BAD,
    GOOD,
    WAITS,
    Step,
    group_of,
    step_of,
)
from headrace.services.redrive.settled import SETTLED_TOPIC
from headrace.wire.contract import confirmations, headers
from headrace.wire.contract.companions import DEAD_SUFFIX, RETRY_SUFFIX, with_companions

PATIENCE_S = 3.0
OF_ONE_TOPIC = Bounds(records=50_000, bytes=8 << 20, seconds=1.5)
LONGEST_S = 8.0
MOST_TOPICS = 40
MOST_GROUPS = 500
# In a topic with more partitions, only the one that the record's companions are in is searched.
MOST_PARTITIONS = 16
MOST_STEPS = 200
MOST_CANDIDATES = 50


@dataclass(slots=True)
class Sought:
    """A record by its place, or by an id or a key."""

    topic: str
    partition: int | None = None
    offset: int | None = None
    id: str = ""
    key: str = ""
    since_ms: int = 0  # for an id or a key: not older than that

    @property
    def record_id(self) -> RecordId | None:
        if self.partition is None or self.offset is None:
            return None
        return (self.topic, self.partition, self.offset)


@dataclass(slots=True)
class Searched:
    topic: str
    partitions: list[int]
    left_out: int  # partitions that were not searched
    looked_at: int  # records
    is_whole: bool
    unread: dict[int, str]


@dataclass(slots=True)
class Life:
    root: str  # the topic that the others belong to
    since_ms: int | None = None
    steps: list[Step] = field(default_factory=list)
    candidates: list[Record] = field(default_factory=list)  # several messages fit
    searched: list[Searched] = field(default_factory=list)
    topics_left_out: list[str] = field(default_factory=list)
    groups_missing: str = ""
    steps_left_out: int = 0


def life_of(connection: HeldClientSettings, sought: Sought) -> Life:
    return _Search(connection.hasty(PATIENCE_S), sought).run()


class _Search:
    def __init__(self, connection: HeldClientSettings, sought: Sought) -> None:
        self._connection, self._sought = connection, sought
        self._deadline = time.monotonic() + LONGEST_S
        self._there = Topics(connection).cluster.topics
        if sought.topic not in self._there:
            raise NoSuchTopic(f"There is no topic {sought.topic}.")
        beside = with_companions(self._there)
        root = next(
            (
                name
                for name, ends in beside.items()
                if sought.topic == name or sought.topic.removeprefix(name) in ends
            ),
            sought.topic,
        )
        ends = sorted(beside.get(root, []), key=_order)
        family = [end for end in ends if _order(end) < ROOT_ORDER]
        later = [end for end in ends if _order(end) >= ROOT_ORDER]
        self._family = [root + end for end in family] + [root] + [root + end for end in later]
        self._life = Life(root)
        self._identity = Identity()
        self._found: dict[RecordId, Record] = {}

    def run(self) -> Life:
        first = self._first_records()
        if not first:
            return self._life
        if self._sought.record_id is None and len(_messages(first)) > 1:
            self._life.candidates = first[:MOST_CANDIDATES]
            return self._life
        for record in first:
            self._add(record)
        self._follow_links()
        since = [r.timestamp_ms for r in self._found.values() if r.timestamp_ms is not None]
        self._life.since_ms = min(since, default=self._sought.since_ms)
        self._life.searched.clear()
        services = [t for t in (SETTLED_TOPIC, confirmations.TOPIC) if t in self._there]
        self._search((*self._family, *services), self._life.since_ms, self._holds)
        self._follow_links()
        steps = [step_of(record) for record in self._found.values()]
        steps.sort(key=lambda step: (step.at_ms or 0, _order_of(step)))
        self._life.steps_left_out = max(len(steps) - MOST_STEPS, 0)
        self._life.steps = steps[:MOST_STEPS] + self._readers()
        return self._life

    # ---- where it begins

    def _first_records(self) -> list[Record]:
        sought = self._sought
        if sought.record_id is not None:
            record = self._at(sought.record_id)
            return [] if record is None else [record]
        self._life.since_ms = sought.since_ms
        found: list[Record] = []

        def accepts(seen: Seen) -> bool:
            if not seen.is_data or len(found) >= MOST_CANDIDATES:
                return False
            if not _is_called(seen.record, sought):
                return False
            found.append(seen.record)
            return True

        self._search(self._family, sought.since_ms, accepts)
        return sorted(found, key=lambda record: record.timestamp_ms or 0)

    def _at(self, record_id: RecordId) -> Record | None:
        topic, partition, offset = record_id
        if topic not in self._there or partition not in self._there[topic].partitions:
            return None
        with suppress(ClientError), closing(Browser(self._connection, topic)) as browser:
            seen = browser.at(partition, offset)
            return seen.record if seen is not None and seen.is_data else None
        return None

    def _add(self, record: Record) -> None:
        self._found[record.topic, record.partition, record.offset] = record
        self._identity.add(record)

    def _follow_links(self) -> None:
        """Places that records name are looked up directly, whatever their age."""
        looked: set[RecordId] = set(self._found)
        while left := [p for p in self._identity.record_ids if p not in looked][:MOST_CANDIDATES]:
            for record_id in left:
                looked.add(record_id)
                if (
                    time.monotonic() < self._deadline
                    and (record := self._at(record_id)) is not None
                ):
                    self._add(record)

    # ---- what else there is

    def _holds(self, seen: Seen) -> bool:
        if not seen.is_data or not self._identity.holds(seen.record):
            return False
        self._add(seen.record)  # the fields of this record help to find the next
        return True

    def _search(
        self, topics: Iterable[str], since_ms: int, accepts: Callable[[Seen], bool]
    ) -> None:
        for number, topic in enumerate(topics):
            if number >= MOST_TOPICS or time.monotonic() > self._deadline:
                self._life.topics_left_out.append(topic)
                continue
            try:
                with closing(Browser(self._connection, topic)) as browser:
                    self._search_one(browser, since_ms, accepts)
            except ClientError as failure:
                self._life.searched.append(Searched(topic, [], 0, 0, False, {-1: str(failure)}))

    def _search_one(self, browser: Browser, since_ms: int, accepts: Callable[[Seen], bool]) -> None:
        chosen = browser.partitions
        if len(chosen) > MOST_PARTITIONS:
            known = {record_id[1] for record_id in self._found}
            chosen = [p for p in chosen if p in known][:MOST_PARTITIONS] or chosen[:MOST_PARTITIONS]
        page: Page = browser.onwards(
            browser.at_time(chosen, since_ms),
            want=MOST_STEPS,
            accepts=accepts,
            bounds=OF_ONE_TOPIC,
        )
        self._life.searched.append(
            Searched(
                browser.topic,
                chosen,
                len(browser.partitions) - len(chosen),
                page.looked_at,
                page.at_the_end and not page.unread,
                dict(page.unread),
            )
        )

    # ---- how far groups have read

    def _readers(self) -> list[Step]:
        """The offsets show it: a group that has committed beyond a record is done with it."""
        try:
            names = [each.group for each in Groups(self._connection).all()]
            with GroupLags(self._connection) as lags:
                committed = lags.committed(names[:MOST_GROUPS])
        except ClientError as failure:
            self._life.groups_missing = str(failure)
            return []
        if len(names) > MOST_GROUPS:
            self._life.groups_missing = f"Only {MOST_GROUPS} of {len(names)} groups were asked."
        last = max((r for r in self._found.values() if r.topic == self._life.root),
                   key=lambda r: r.timestamp_ms or 0, default=None)  # fmt: skip
        given_up = self._given_up()
        troubled = {
            unescaped(group_of(r.topic)): r
            for r in sorted(self._found.values(), key=lambda r: r.offset)
            if r.topic.endswith(RETRY_SUFFIX)
        }
        steps = []
        for group, offsets in sorted(committed.items()):
            where = troubled.get(group, last)
            if where is None or group in given_up:
                continue
            offset = offsets.get((where.topic, where.partition))
            if offset is not None:
                steps.append(_read_by(group, offset > where.offset, retried=group in troubled))
        return steps

    def _given_up(self) -> set[str]:
        """Returns the groups with a dead letter of it that was neither resent nor discarded."""
        settled = {
            (record.key or b"").decode(errors="replace")
            for record in self._found.values()
            if record.topic == SETTLED_TOPIC
        }
        return {
            unescaped(group_of(topic))
            for topic, partition, offset in self._found
            if topic.endswith(DEAD_SUFFIX) and f"{topic}/{partition}/{offset}" not in settled
        }


def _read_by(group: str, done: bool, *, retried: bool) -> Step:
    if done:
        title = f"Handled by group {group}" + (" after retries" if retried else "")
        return Step(None, GOOD, title, ["the committed offset is after it"])
    title = f"Group {group} is to try again" if retried else f"Not read yet by group {group}"
    return Step(None, BAD if retried else WAITS, title, ["the committed offset is before it"])


ROOT_ORDER = 3
_ORDERS = (".delay", ".delay.rejected", ".delay.outcomes")


def _order(end: str) -> int:
    """Sort key: the order in which a message passes through topics; each search helps the next."""
    return _ORDERS.index(end) if end in _ORDERS else ROOT_ORDER + end.endswith(DEAD_SUFFIX)


def _order_of(step: Step) -> int:
    """Sort key for steps of the same millisecond."""
    topic = "" if step.record is None else step.record.topic
    for number, end in enumerate((".delay", RETRY_SUFFIX, DEAD_SUFFIX)):
        if topic.endswith(end):
            return number + 1
    return 9 if topic in (SETTLED_TOPIC, confirmations.TOPIC) else 0


def _is_called(record: Record, sought: Sought) -> bool:
    if sought.key and record.key != sought.key.encode():
        return False
    if not sought.id:
        return bool(sought.key)
    told = texts(record)
    ids = {told.get(headers.ID), told.get(headers.CANCEL), told.get(headers.MESSAGE_ID)}
    ids.add(told.get(app_headers.CARRIED_ID))
    return sought.id in ids or any(each and each.startswith(f"{sought.id}@") for each in ids)


def _messages(records: list[Record]) -> list[Identity]:
    """Returns the different messages among these records; a record may join two that seemed
    different."""
    found: list[Identity] = []
    for record in records:
        one = Identity()
        one.add(record)
        for known in [each for each in found if each.holds(record)]:
            found.remove(known)
            one.join(known)
        found.append(one)
    return found
