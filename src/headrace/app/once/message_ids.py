"""Ids of messages: the names under which `once=` remembers records.

A record without an id of its sender is named by its place: `orders/0/5@<topic id>`. The topic's id
is a part of it because a topic that is deleted and created again has the same name and begins with
offset 0 again: without it, new records would be taken for old ones that were handled. The id of a
published record begins with that of the record it came from, so it differs as well.

An id that a sender chose is unique within its topic at best (`7` in `orders` and in `refunds` are
two messages), so it is remembered together with the topic: `orders//7`.

Ids were written without the topic's id, and those of senders without the topic, until these were
added: `former_id` is that older form, which a store may still hold for a record.
"""

from __future__ import annotations

import re

from headrace.client.records import HeaderList
from headrace.wire.contract.headers import MESSAGE_ID, SOURCE, SOURCE_TOPIC_ID

# A place, with or without the topic's id; publishing adds a "~" and more text.
_PLACE = re.compile(r"[A-Za-z0-9._-]+/\d+/\d+(?:@[A-Za-z0-9_-]{22})?(?:~.*)?", re.ASCII | re.DOTALL)
# As `remembered_as` writes it.
_OF_TOPIC = re.compile(r"[A-Za-z0-9._-]+//(.*)", re.ASCII | re.DOTALL)
# Base64 of 16 bytes, as Kafka prints topic ids.
_WITH_TOPIC_ID = re.compile(r"([^@~]+/\d+/\d+)@[A-Za-z0-9_-]{22}((?:~.*)?)", re.ASCII | re.DOTALL)


# How far a producer's clock may be ahead of the clock that wrote down when its record was handled.
CLOCKS_DIFFER_MS = 60_000
# While old and new workers run together, those without topic ids still write older ids.
UPGRADE_TAKES_MS = 24 * 3_600_000


def place_id(record_id: str, topic_id: str | None) -> str:
    """The id of the record at topic/partition/offset; before Kafka 2.8 topics have no ids."""
    return record_id if not topic_id else f"{record_id}@{topic_id}"


def sent_id(headers: HeaderList) -> str | None:
    """The id in a record's own headers, from its sender or from the delay service that delivered
    it; None: the record is named by its place."""
    given = {name: value for name, value in headers if value}  # an empty one is not an id
    if MESSAGE_ID in given:
        return _id_text(given[MESSAGE_ID])
    if SOURCE in given:
        of_topic = given.get(SOURCE_TOPIC_ID, b"").decode("utf-8", "replace")
        return place_id(given[SOURCE].decode("utf-8", "replace"), of_topic)
    return None


def _id_text(raw: bytes) -> str:
    """The id as text: different bytes are different ids, also if they are not UTF-8, such as a
    binary number."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"bytes:{raw.hex()}"


def remembered_as(topic: str, message_id: str) -> str:
    """The name under which `once=` remembers a message that was first written to this topic."""
    return message_id if _PLACE.fullmatch(message_id) else f"{topic}//{message_id}"


def former_id(message_id: str) -> str | None:
    """The id in its form before topic ids, and before the topic was a part of ids that senders
    chose; None for an id that never had another form."""
    of_topic = _OF_TOPIC.fullmatch(message_id)
    if of_topic is not None:
        return of_topic[1]
    found = _WITH_TOPIC_ID.fullmatch(message_id)
    return None if found is None else found[1] + found[2]


def may_be_known_formerly(written_at_ms: int | None, topic_ids_since_ms: int) -> bool:
    """Whether a record is old enough to have been handled when ids had no topic id."""
    return written_at_ms is None or written_at_ms <= topic_ids_since_ms + UPGRADE_TAKES_MS


def was_this(written_at_ms: int | None, handled_at_ms: int) -> bool:
    """Whether the message that was handled then, under the older id, can be this record: a record
    of a topic that was created again was written later.
    """
    return written_at_ms is None or written_at_ms <= handled_at_ms + CLOCKS_DIFFER_MS
