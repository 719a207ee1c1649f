"""Records of the topic `headrace.delay.far`: what is pending and the intake need not keep any more.

The key is the record's place in the intake, the value is its own value, so that people can
read it. Its own key and what it asked for are headers, in the form the intake would take: `read`
goes through the same instructions. A null value would be a tombstone, so it is empty and marked.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.contract import headers as names
from headrace.services.delay.instructions import RecordFields, Schedule, read_instruction
from headrace.services.delay.rows import Row, row_of
from headrace.services.delay.settlement import FarRecord

_OWN = frozenset({names.FAR_KEY, names.FAR_APPENDED_AT, names.FAR_NULL})


def key_of(topic: str, partition: int, offset: int) -> bytes:
    return f"{topic}/{partition}/{offset}".encode()


def place_of(key: bytes) -> tuple[str, int, int]:
    """Topic, partition, offset. Raises ValueError for a key that is not ours."""
    topic, partition, offset = key.decode().split("/")
    return topic, int(partition), int(offset)


def tombstone(topic: str, partition: int, offset: int) -> FarRecord:
    return FarRecord(key_of(topic, partition, offset), None, [])


def write(topic: str, partition: int, row: Row) -> FarRecord:
    due_ms, offset, (key, value, kept_headers, target, appended_ms, id_, cron) = row
    headers = list(kept_headers or ())
    headers.append((names.FAR_APPENDED_AT, b"%d" % appended_ms))
    if key is not None:
        headers.append((names.FAR_KEY, key))
    if value is None:
        headers.append((names.FAR_NULL, b"1"))
    if target is not None:
        headers.append((names.PARTITION, b"%d" % target))
    if id_ is not None:
        headers.append((names.ID, id_.encode()))
    if cron is None:
        headers.append((names.DELIVER_AT, b"%d" % due_ms))
    else:
        expression, zone, until_ms, count, _ = cron
        headers += [(names.CRON, expression.encode()), (names.CRON_ZONE, zone.encode())]
        if until_ms is not None:
            headers.append((names.CRON_UNTIL, b"%d" % until_ms))
        if count is not None:
            headers.append((names.CRON_COUNT, b"%d" % count))
    return FarRecord(key_of(topic, partition, offset), value if value is not None else b"", headers)


def read(key: bytes, value: bytes, headers: Sequence[tuple[str, bytes | None]]) -> Row:
    """Raises ValueError for a record that `write` has not written."""
    own = {name: content for name, content in headers if name in _OWN}
    rest = [header for header in headers if header[0] not in _OWN]
    appended_ms = int(own.get(names.FAR_APPENDED_AT) or b"")
    record: RecordFields = (
        place_of(key)[2],
        appended_ms,
        own.get(names.FAR_KEY),
        None if names.FAR_NULL in own else value,
        rest,
    )
    instruction = read_instruction(record)
    if not isinstance(instruction, Schedule):
        raise ValueError(f"the far record {key!r} holds no schedule: {instruction}")
    return row_of(record, instruction)
