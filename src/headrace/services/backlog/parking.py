"""Park a group's backlog in a database, and bring it back to that group alone.

Parking copies what the group has not read into a table, then moves the group's offsets behind it.
The order of the two steps loses nothing: a parking that was killed is done again, and the table
has each record once. Bringing back sends rows to the retry topic of the app's group, each once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from headrace.app.names import retry_topic
from headrace.client.browsing import Browser
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.groups import Groups, Place
from headrace.client.records import Record
from headrace.client.time_ordered import TimeOrderedReader
from headrace.client.topics import Topics
from headrace.services.backlog.parked import ParkedRecords, opened
from headrace.services.replay import journal, selection
from headrace.services.replay.copying import Copying, CopyPlan, CopyRequest, Dress, Spans
from headrace.services.replay.group_moves import GroupMoves
from headrace.services.replay.journal import CopyEntry
from headrace.services.replay.pace import Pace
from headrace.services.replay.retried import require_retry_topic, retried
from headrace.services.replay.selection import Selection

RECORDS_PER_WRITE = 500
BYTES_PER_WRITE = 4 << 20
NAMED = "bring-back"


class CannotPark(ClientError):
    """One sentence why this backlog cannot be parked or brought back so."""


@dataclass(slots=True)
class ParkPlan:
    topic: str
    topic_id: str
    group: str
    spans: Spans  # from the group's offset to the end of what is committed
    left_alone: list[int] = field(default_factory=list)  # partitions without an offset of the group

    @property
    def most(self) -> int:
        return sum(end - first for first, end in self.spans.values())


class Parking:
    def __init__(
        self, connection: Connection, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._connection = connection
        self._sleep = sleep

    # ---- parking

    def plan(self, topic: str, group: str) -> ParkPlan:
        groups = Groups(self._connection)
        groups.partitions_of(topic)
        groups.require_inactive(group)
        committed = groups.committed(group)
        topic_id = Topics(self._connection).ids([topic])[topic]
        with closing(Browser(self._connection, topic)) as browser:
            lows, ends = browser.beginnings(browser.partitions), browser.ends(browser.partitions)
            spans: Spans = {}
            left_alone = []
            for p in browser.partitions:
                if p not in ends or p not in lows:
                    raise CannotPark(f"{topic}-{p} has no leader now; try again later.")
                if (topic, p) not in committed:
                    left_alone.append(p)  # nobody knows where the group would begin there
                    continue
                spans[p] = (min(max(committed[topic, p], lows[p]), ends[p]), ends[p])
        if not spans:
            raise CannotPark(f"Group {group} has committed nothing in {topic}: it has no backlog.")
        return ParkPlan(topic, topic_id, group, spans, left_alone)

    def park(self, plan: ParkPlan, url: str, *, by: str, reason: str = "") -> Iterator[int]:
        """Yields how many records are in the table, until the group stands behind them."""
        store = self._store(plan, url)
        store.prepare()
        done = 0
        with closing(TimeOrderedReader(self._connection, plan.topic, plan.spans)) as reader:
            for batch in _batches(reader.records()):
                store.put(batch)
                done += len(batch)
                yield done
        current: dict[Place, int | None] = {}
        committed = Groups(self._connection).committed(plan.group)
        for partition in plan.spans:
            current[plan.topic, partition] = committed.get((plan.topic, partition))
        GroupMoves(self._connection).move(
            plan.group,
            current=current,
            targets={(plan.topic, p): end for p, (_, end) in plan.spans.items()},
            by=by,
            reason=reason or "its backlog was parked",
        )
        yield done

    def _store(self, plan: ParkPlan, url: str) -> ParkedRecords:
        return opened(url, group=plan.group, topic=plan.topic, topic_id=plan.topic_id)

    # ---- bringing back

    def store(self, topic: str, group: str, url: str) -> tuple[ParkedRecords, str]:
        """And the topic's id, which tells it from a topic of the same name before."""
        topic_id = Topics(self._connection).ids([topic])[topic]
        return opened(url, group=group, topic=topic, topic_id=topic_id), topic_id

    def bring_back_plan(
        self, topic: str, group: str, url: str, wanted: Selection, *, by: str
    ) -> tuple[ParkedRecords, CopyPlan]:
        wanted.check()
        counts = {each.name: each.partitions for each in Topics(self._connection).all()}
        to_topic = require_retry_topic(topic, group, counts)
        store, topic_id = self.store(topic, group, url)
        store.prepare()
        name, entry = self._run(topic, group, wanted)
        spans = {
            each.partition: (each.first, each.last + 1) for each in store.spans() if each.waiting
        }
        if entry is None and not spans:
            raise CannotPark(f"Nothing of {topic} is parked for group {group} there.")
        request = CopyRequest(name, topic, to_topic, wanted, by=by)
        return store, CopyPlan(request, topic_id, spans, same_partitions=True, entry=entry)

    def bring_back(
        self, store: ParkedRecords, plan: CopyPlan, group: str, pace: Pace
    ) -> Iterator[CopyEntry]:
        if plan.entry is not None:
            _mark_sent(store, plan.entry)  # those of a transaction after which it was killed
        copying = Copying(self._connection, self._connection, sleep=self._sleep)
        everything = {partition: end for partition, (_, end) in plan.spans.items()}
        if plan.entry is not None:
            everything |= plan.entry.ends
        dress: Dress = retried(
            plan.topic_id, retry_topic(plan.request.topic, group), everything, new_ids=None
        )
        yield from copying.copy(
            plan,
            pace,
            dress,
            read=lambda spans: store.waiting({p: first for p, (first, _) in spans.items()}),
            settle=lambda records: store.mark_brought_back(
                [(record.partition, record.offset) for record in records]
            ),
        )

    def _run(self, topic: str, group: str, wanted: Selection) -> tuple[str, CopyEntry | None]:
        """The run that this is: one that was stopped goes on, else the next one begins."""
        copies = journal.read_journal(self._connection).copies
        of_group = f"{NAMED}/{topic}/{group}/"
        asked = hashlib.sha256(json.dumps(selection.as_json(wanted)).encode()).hexdigest()[:12]
        for entry in copies.values():
            if entry.name.startswith(of_group) and entry.state == journal.UNDER_WAY:
                if entry.name.split("/")[-2] == asked:
                    return entry.name, entry
                raise CannotPark(
                    f"Records of {topic} are being brought back to {group} by other conditions: "
                    "let that command end first."
                )
        number = sum(name.startswith(of_group) for name in copies)
        return f"{of_group}{asked}/{number}", None


def _mark_sent(store: ParkedRecords, entry: CopyEntry) -> None:
    wanted = selection.from_json(entry.asked["selection"])
    starts = dict.fromkeys(entry.next, 0)
    sent = [
        (record.partition, record.offset)
        for record in store.waiting(starts)
        if record.offset < entry.next[record.partition] and wanted.accepts(record)
    ]
    for at in range(0, len(sent), RECORDS_PER_WRITE):
        store.mark_brought_back(sent[at : at + RECORDS_PER_WRITE])


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.value or b"") + len(record.key or b"")
        if len(batch) == RECORDS_PER_WRITE or size >= BYTES_PER_WRITE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
