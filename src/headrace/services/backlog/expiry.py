"""Turns old records into dead letters of a group, and moves the group's offsets after them.

The records older than a moment are the beginning of each partition's backlog, up to the first
record that is not. The records keep key, value and headers; their letter says that they expired.
The copy is exactly once, and the group moves when it is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from headrace.app import headers as names
from headrace.app.names import dead_topic
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.lookup.time_ordered import TimeOrderedReader
from headrace.client.records import Outgoing, Record
from headrace.services.backlog.parking import CannotPark, Parking, ParkPlan
from headrace.services.replay import journal, widenings
from headrace.services.replay.group_moves import GroupMoves
from headrace.services.replay.journal import CopyEntry
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection
from headrace.services.replay.topic_copy import Copying, CopyPlan, CopyRequest, Dress, Spans

ERROR = "headrace.Expired"


@dataclass(slots=True)
class ExpiryPlan:
    park: ParkPlan  # the spans that are too old
    older_than_ms: int
    now_ms: int


class Expiry:
    def __init__(self, connection: ClientSettings) -> None:
        self._connection = connection

    def plan(self, topic: str, group: str, *, older_than_ms: int, now_ms: int) -> ExpiryPlan:
        plan = Parking(self._connection).plan(topic, group)
        Groups(self._connection).require_inactive(group)
        dead = dead_topic(topic, group)
        if dead not in Topics(self._connection).cluster.topics:
            raise CannotPark(
                f"Group {group} has no dead letters ({dead}): it is not an app of Headrace. Use "
                "headrace groups reset to skip records."
            )
        plan.spans = self._old_part(plan, now_ms - older_than_ms)
        return ExpiryPlan(plan, older_than_ms, now_ms)

    def _old_part(self, plan: ParkPlan, young_ms: int) -> Spans:
        """Up to the first record of each partition that is young enough.

        Read in the order of time, the first young record of all ends the search: what comes after
        it, in any partition, is behind a young record of its own partition or is one itself.
        """
        ends = {p: first for p, (first, _) in plan.spans.items()}
        with closing(TimeOrderedReader(self._connection, plan.topic, plan.spans)) as reader:
            for record in reader.records():
                if record.timestamp_ms is None or record.timestamp_ms >= young_ms:
                    break
                ends[record.partition] = record.offset + 1
        return {p: (first, ends[p]) for p, (first, _) in plan.spans.items()}

    def expire(self, plan: ExpiryPlan, *, by: str) -> Generator[CopyEntry, None, None]:
        """Yields the progress; at the end the group has committed behind the expired records."""
        park = plan.park
        widenings.require_none(self._connection, park.group, [park.topic])
        name = _name(park)
        dead = dead_topic(park.topic, park.group)
        request = CopyRequest(name, park.topic, dead, Selection(), by=by, loop_guarded=False)
        copying = Copying(self._connection, self._connection)
        # The name holds the group's offsets: a copy that is done and has not moved the group yet is
        # not made again.
        entry = journal.read_journal(self._connection).copies.get(name)
        if entry is None or entry.state != journal.DONE:
            copies = CopyPlan(request, park.topic_id, park.spans, same_partitions=True)
            yield from copying.copy(copies, Pace(), _letter(plan))
            entry = journal.read_journal(self._connection).copies[name]
        GroupMoves(self._connection).move(
            park.group,
            # Where the group was when the records were chosen: records that it has read since are
            # not dead letters.
            current={(park.topic, p): park.committed[p] for p in entry.ends},
            targets={(park.topic, p): end for p, end in entry.ends.items()},
            by=by,
            reason=f"records older than {plan.older_than_ms // 1000} s expired",
        )
        yield entry


def _name(plan: ParkPlan) -> str:
    starts = sorted((p, first) for p, (first, _) in plan.spans.items())
    digest = hashlib.sha256(json.dumps([plan.topic_id, starts]).encode()).hexdigest()[:12]
    return f"expire/{plan.topic}/{plan.group}/{digest}"


def _letter(plan: ExpiryPlan) -> Dress:
    park = plan.park

    def dress(record: Record) -> Outgoing[bytes, bytes]:
        assert record.timestamp_ms is not None, "one without a time is not old"
        age_s = (plan.now_ms - record.timestamp_ms) // 1000
        text = f"it was {age_s:,} s old, and only {plan.older_than_ms // 1000:,} s were allowed"
        more = {
            names.DEAD_ERROR: ERROR,
            names.DEAD_MESSAGE: text,
            names.DEAD_ATTEMPTS: "0",
            names.DEAD_FIRST_AT: str(plan.now_ms),
            names.DEAD_LAST_AT: str(plan.now_ms),
            names.DEAD_TOPIC: record.topic,
            names.DEAD_PARTITION: str(record.partition),
            names.DEAD_OFFSET: str(record.offset),
            names.DEAD_GROUP: park.group,
        }
        headers = [pair for pair in record.headers if not pair[0].startswith(names.DEAD_PREFIX)]
        headers += [(name, value.encode()) for name, value in more.items()]
        to_topic = dead_topic(park.topic, park.group)
        return Outgoing(to_topic, record.value, record.key, headers, record.partition, None)

    return dress
