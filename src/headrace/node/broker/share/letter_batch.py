"""The dead letters of a share group: whole records, with the reason and their origin in headers.

The form is that of an app's dead letters, so that the same commands show them and send them again.
A letter says nothing that a new leader would not find again, but for the time when it was made:
`headrace-dead-id` is the same in each copy of one letter. It names the record and the state epoch
of the share partition: a group whose offsets are reset may give the same record up once more, and
that is another letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.node.coordination.share.share_partition import LetterDue
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.replication.replica import PartitionLeader
from headrace.wire.contract import headers as names
from headrace.wire.contract.companions import RETRY_SUFFIX
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.record_batch import Record, RecordHeader, build, headers_in, walk
from headrace.wire.protocol.uuids import to_text

LETTERS_AT_ONCE = 100
# A batch must fit into `max.message.bytes` of the dead-letter topic, 1 MiB by default.
BYTES_AT_ONCE = 256 << 10
LARGEST_BATCH_BYTES = 128 << 20  # uncompressed


class Origin(Protocol):
    """The share partition that gives the records up."""

    key: SharePartitionKey
    leader: PartitionLeader
    state_epoch: int


@dataclass(slots=True)
class LetterBatch:
    ranges: list[tuple[int, int]]  # the offsets whose records it has; both inclusive
    count: int
    batch: bytes | None  # None: there are no records at these offsets any more


def letters_of(part: Origin, due: Sequence[LetterDue], most: int, wall_ms: int) -> LetterBatch:
    """Returns the letters of the first records in `due`: up to `most`, and at least one. Raises
    KafkaError if they cannot be read."""
    ranges: list[tuple[int, int]] = []
    letters: list[Record] = []
    size = 0
    for first, last, deliveries in due:
        for record in _records(part.leader, first, last):
            letter = _letter(part, record, deliveries, wall_ms)
            letters.append(letter)
            size += _size(letter)
            if len(letters) >= most or size >= BYTES_AT_ONCE:
                ranges.append((first, record.offset))
                return LetterBatch(ranges, len(letters), build(letters))
        ranges.append((first, last))
    return LetterBatch(ranges, len(letters), build(letters) if letters else None)


def _records(leader: PartitionLeader, first: int, last: int) -> Iterator[Record]:
    position = first
    while position <= last:
        found = leader.read(position, BYTES_AT_ONCE, committed=False, at_least_one=True)
        if found is None:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"Offset {position} cannot be read yet."
            )
        data = found.file.read(found.length, found.position)
        before = position
        try:
            for at, header in headers_in(data):
                if at + header.size > len(data) or header.base_offset > last:
                    break
                position = header.last_offset + 1
                if header.is_control:
                    continue
                for record in walk(memoryview(data)[at : at + header.size], LARGEST_BATCH_BYTES):
                    if first <= record.offset <= last:
                        yield record
        except MalformedMessage as damage:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        if position == before:
            return  # the next batch begins after `last`


def _letter(part: Origin, record: Record, deliveries: int, wall_ms: int) -> Record:
    topic, partition, offset = _first_place(part, record)
    error, message = _reason(deliveries)
    key = part.key
    letter_id = (
        f"{to_text(key.topic_id)}/{key.partition}/{record.offset}/{part.state_epoch}/{key.group_id}"
    )
    own = {
        names.DEAD_ERROR: error,
        names.DEAD_MESSAGE: message,
        names.DEAD_ATTEMPTS: str(deliveries),
        names.DEAD_LAST_AT: str(wall_ms),
        names.DEAD_TOPIC: topic,
        names.DEAD_PARTITION: partition,
        names.DEAD_OFFSET: offset,
        names.DEAD_GROUP: key.group_id,
        names.DEAD_ID: letter_id,
    }
    kept = [each for each in record.headers if not each.key.startswith(names.DEAD_PREFIX)]
    if not any(each.key == names.RETRY_ORIGIN_AT for each in kept):
        own[names.RETRY_ORIGIN_AT] = str(record.timestamp)
    added = [
        RecordHeader(name, text.encode("utf-8", "surrogatepass")) for name, text in own.items()
    ]
    return Record(record.key, record.value, [*kept, *added], wall_ms)


def _reason(deliveries: int) -> tuple[str, str]:
    """The state that a new leader finds has no reason, so a letter says what is sure."""
    times = "once" if deliveries == 1 else f"{deliveries} times"
    return (
        "headrace.GivenUp",
        f"delivered {times}, then rejected by a consumer or not accepted within the limit of "
        "deliveries",
    )


def _first_place(part: Origin, record: Record) -> tuple[str, str, str]:
    """A record that came back from the dead letters keeps its first place: what is sent again goes
    to the partition of that."""
    topic = part.leader.topic
    if topic.endswith(RETRY_SUFFIX):
        for header in record.headers:
            if header.key == names.RETRY_ORIGIN and header.value is not None:
                words = header.value.decode(errors="replace").rsplit("/", 2)
                if len(words) == 3 and topic.startswith(f"{words[0]}."):
                    return words[0], words[1], words[2]
    return topic, str(part.key.partition), str(record.offset)


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(each.key) + len(each.value or b"") for each in record.headers)
