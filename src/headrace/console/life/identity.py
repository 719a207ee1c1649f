"""How the records of one message refer to each other: places, ids, a schedule's id. Pure.

A delivered record names the delayed record it came from (`headrace-source`). A retry and a dead
letter name the place where the message was first read (`headrace-retry-origin`,
`headrace-dead-topic` and the headers beside it) and carry its message id. Every record that belongs
to the message adds what it knows, so that the next one is found. Any client can write these
headers: a value that cannot be read is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headrace.app import headers as app_headers
from headrace.client.records import Record
from headrace.services.redrive.settled import SETTLED_TOPIC
from headrace.wire.contract import confirmations, headers

RecordId = tuple[str, int, int]  # topic, partition, offset

_PLACE = re.compile(r"([a-zA-Z0-9._-]{1,249})/(\d{1,10})/(\d{1,18})", re.ASCII)


@dataclass(slots=True)
class Identity:
    record_ids: set[RecordId] = field(default_factory=set)
    message_ids: set[str] = field(default_factory=set)
    schedules: set[tuple[bytes | None, str]] = field(default_factory=set)  # key and schedule's id

    def add(self, record: Record) -> None:
        told = texts(record)
        self.record_ids.add((record.topic, record.partition, record.offset))
        self.record_ids.update(links(told))
        for name in (headers.MESSAGE_ID, app_headers.CARRIED_ID):
            if told.get(name):
                self.message_ids.add(told[name])
        for name in (headers.ID, headers.CANCEL):
            if told.get(name):
                self.schedules.add((record.key, told[name]))

    def join(self, other: Identity) -> None:
        self.record_ids |= other.record_ids
        self.message_ids |= other.message_ids
        self.schedules |= other.schedules

    def holds(self, record: Record) -> bool:
        """Whether a record is about this message."""
        if record.topic == SETTLED_TOPIC:
            letter = record_id_in((record.key or b"").decode(errors="replace"))
            return letter is not None and letter in self.record_ids
        if record.topic == confirmations.TOPIC:
            said = confirmations.understood(record.value)
            return said is not None and said[1] in self.message_ids
        told = texts(record)
        if (record.topic, record.partition, record.offset) in self.record_ids:
            return True
        if not self.record_ids.isdisjoint(links(told)):
            return True
        ids = {told.get(headers.MESSAGE_ID), told.get(app_headers.CARRIED_ID)}
        if not self.message_ids.isdisjoint(ids):
            return True
        schedules = {(record.key, told[n]) for n in (headers.ID, headers.CANCEL) if told.get(n)}
        return not self.schedules.isdisjoint(schedules)


def texts(record: Record) -> dict[str, str]:
    return {name: (raw or b"").decode(errors="replace") for name, raw in record.headers}


def links(told: dict[str, str]) -> set[RecordId]:
    """Places of other records of the same message."""
    found = {record_id_in(told.get(name, "")) for name in (headers.SOURCE, app_headers.ORIGIN)}
    dead = "/".join(
        told.get(name, "")
        for name in (
            app_headers.DEAD_TOPIC,
            app_headers.DEAD_PARTITION,
            app_headers.DEAD_OFFSET,
        )
    )
    return {record_id for record_id in (*found, record_id_in(dead)) if record_id is not None}


def record_id_in(said: str) -> RecordId | None:
    found = _PLACE.fullmatch(said)
    return None if found is None else (found[1], int(found[2]), int(found[3]))
