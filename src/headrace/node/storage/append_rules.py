"""The rules for a client's batch, and the changes to a batch that cannot go into the log unchanged.

`PartitionLog.append` decides the common case. This module has the refusals in Apache Kafka's order
and with its codes, and the rare work: timestamps of the log, keys of compacted topics, another
compression. Records are read only for the latter and for `message.timestamp.before.max.ms`.
Otherwise a payload with a correct checksum is accepted, even if it is not a list of records.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from crc32c import crc32c

from headrace.node.storage.log_settings import UNLIMITED, LogSettings
from headrace.wire.protocol import compression
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_DECOMPRESSED,
    MAX_TIMESTAMP_AT,
    MOST_BYTES_NAMED,
    MOST_RECORDS_LOOKED_AT,
    MOST_RECORDS_NAMED,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    count_fits,
    every_record_has_key,
    header_at,
    require_records,
    timestamp_deltas,
    walk,
)

# The smallest message there ever was: a length below it is damage (magic 0 without key and value).
SMALLEST_LENGTH = 14

_CRC = Struct(">I")
_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")


class RecordsRefused(KafkaError):
    """The batch is whole, but the contents of its records are refused; `records` names them, unless
    all are."""

    def __init__(
        self, code: ErrorCode, message: str, records: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(code, message)
        self.records = records or []


def only_batch(records: memoryview) -> memoryview:
    """The one batch of format 2 in `records`, without torn bytes behind it; or a refusal."""
    size = whole_batch_size(records)
    if size is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the records hold no whole batch")
    if records[MAGIC_AT] != MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"the batch has format {records[MAGIC_AT]}, only 2 is taken"
        )
    if whole_batch_size(records[size:]) is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    base_offset = int.from_bytes(records[:LENGTH_AT], "big")
    if base_offset:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, f"the batch has base offset {base_offset}, expected 0"
        )
    if size < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch is smaller than its header")
    if size == HEADER_SIZE:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "the batch holds no records")
    return records[:size]


def whole_batch_size(records: memoryview) -> int | None:
    """Size of the batch in front; None if it is torn. Raises if this cannot be a batch."""
    if len(records) < LENGTH_OVERHEAD:
        return None
    length = int.from_bytes(records[LENGTH_AT:LENGTH_OVERHEAD], "big", signed=True)
    if length < SMALLEST_LENGTH:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch cannot have length {length}")
    if len(records) <= MAGIC_AT:
        return None
    if records[MAGIC_AT] > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown batch format {records[MAGIC_AT]}")
    size = length + LENGTH_OVERHEAD
    return size if size <= len(records) else None


def too_large(size: int, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, the topic takes {limit}"
    )


def prepare(records: memoryview, settings: LogSettings, wall_ms: int) -> memoryview:
    """The batch as it goes into the log; the same buffer, changed in place, where that will do."""
    batch = header_at(records, 0, 0)
    check_count_and_kind(batch)
    check_timestamps(records, batch, settings, wall_ms)
    if settings.validates_records:
        check_records(records, batch)
    if settings.needs_keys:
        check_keys(records, batch)
    if settings.compression_type != "producer":
        records = compressed_as_configured(records, batch, settings)
        batch = header_at(records, 0, 0)
    if settings.stamps_append_time:
        stamp(records, batch.attributes | LOG_APPEND_TIME, wall_ms)
    elif batch.attributes & LOG_APPEND_TIME:
        stamp(records, batch.attributes & ~LOG_APPEND_TIME, batch.max_timestamp)
    return records


def check_count_and_kind(batch: BatchHeader) -> None:
    span = batch.last_offset - batch.base_offset + 1
    if span <= 0 or span != batch.record_count:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, f"{batch.record_count} records, but {span} offsets"
        )
    codec = batch.attributes & COMPRESSION_MASK
    if not count_fits(batch.record_count, batch.size - HEADER_SIZE, compressed=codec != 0):
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"{batch.record_count} records do not fit {batch.size - HEADER_SIZE} bytes",
        )
    if batch.attributes & CONTROL:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if batch.attributes & COMPRESSION_MASK > compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"unknown compression {batch.attributes & COMPRESSION_MASK}",
        )


def check_timestamps(
    records: memoryview, batch: BatchHeader, settings: LogSettings, wall_ms: int
) -> None:
    if not settings.stamps_append_time and batch.max_timestamp != NO_TIMESTAMP:
        earliest = wall_ms - settings.timestamp_before_max_ms
        latest = wall_ms + settings.timestamp_after_max_ms
        oldest = batch.max_timestamp
        if settings.timestamp_before_max_ms != UNLIMITED:
            oldest = oldest_timestamp(records, batch)
        if batch.max_timestamp > latest or oldest < earliest:
            raise RecordsRefused(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamps {oldest} to {batch.max_timestamp}, taken: {earliest} to {latest}",
                named(
                    records,
                    batch,
                    lambda record: (
                        None
                        if earliest <= record.timestamp <= latest
                        else f"its timestamp is {record.timestamp}"
                    ),
                ),
            )
    elif batch.attributes & LOG_APPEND_TIME:
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, "only the broker sets log append time")


def oldest_timestamp(records: memoryview, batch: BatchHeader) -> int:
    if batch.attributes & LOG_APPEND_TIME:
        return batch.max_timestamp
    require_few(batch)
    try:
        deltas = timestamp_deltas(records, MAX_DECOMPRESSED)
    except MalformedMessage as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    stamps = (batch.base_timestamp + delta for delta in deltas)
    return min((each for each in stamps if each != NO_TIMESTAMP), default=batch.max_timestamp)


def require_few(batch: BatchHeader) -> None:
    """Refuse a batch with too many records before they are read on the loop: all other clients wait
    meanwhile."""
    if batch.record_count > MOST_RECORDS_LOOKED_AT:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"{batch.record_count} records in a batch, the topic takes {MOST_RECORDS_LOOKED_AT}",
        )


def named(
    records: memoryview, batch: BatchHeader, wrong: Callable[[Record], str | None]
) -> list[tuple[int, str]]:
    """The errors by record; empty for a batch so large that listing them would cost too much."""
    if batch.record_count > MOST_RECORDS_NAMED:
        return []
    try:
        found = [(n, wrong(r)) for n, r in enumerate(walk(records, MOST_BYTES_NAMED))]
    except MalformedMessage:
        return []
    return [(number, why) for number, why in found if why is not None]


def check_records(records: memoryview, batch: BatchHeader) -> None:
    """Check all that a reader depends on: whole records whose offsets count up from 0."""
    require_few(batch)
    try:
        require_records(records, MAX_DECOMPRESSED)
    except MalformedMessage as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, str(error)) from error


def check_keys(records: memoryview, batch: BatchHeader) -> None:
    require_few(batch)
    try:
        if every_record_has_key(records, MAX_DECOMPRESSED):
            return
    except MalformedMessage as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    raise RecordsRefused(
        ErrorCode.INVALID_RECORD,
        "a compacted topic takes no record without a key",
        named(records, batch, lambda record: "it has no key" if record.key is None else None),
    )


def compressed_as_configured(
    records: memoryview, batch: BatchHeader, settings: LogSettings
) -> memoryview:
    """The batch with the topic's own compression; the records themselves stay as they are."""
    wanted = settings.compression_type
    codec = 0 if wanted == "uncompressed" else compression.NAMES.index(wanted)
    given = batch.attributes & COMPRESSION_MASK
    if codec == given:
        return records
    try:
        plain = compression.decompress(given, records[HEADER_SIZE:], MAX_DECOMPRESSED)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    level = {
        "gzip": settings.compression_gzip_level,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }.get(wanted)
    payload = compression.compress(codec, plain, level)
    size = HEADER_SIZE + len(payload)
    if size > settings.max_message_bytes:
        raise too_large(size, settings.max_message_bytes)
    changed = memoryview(bytearray(records[:HEADER_SIZE].tobytes() + payload))
    _LENGTH.pack_into(changed, LENGTH_AT, size - LENGTH_OVERHEAD)
    stamp(changed, batch.attributes & ~COMPRESSION_MASK | codec, batch.max_timestamp)
    return changed


def stamp(records: memoryview, attributes: int, max_timestamp: int) -> None:
    """Set what the timestamps of the records mean; the checksum covers both fields."""
    _ATTRIBUTES.pack_into(records, ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(records, MAX_TIMESTAMP_AT, max_timestamp)
    _CRC.pack_into(records, CRC_AT, crc32c(records[ATTRIBUTES_AT:]))


def length_and_timestamp(records: memoryview) -> tuple[int, int]:
    """Returns length and largest timestamp of a batch that `prepare` may have changed."""
    (max_timestamp,) = _MAX_TIMESTAMP.unpack_from(records, MAX_TIMESTAMP_AT)
    return len(records) - LENGTH_OVERHEAD, max_timestamp


def batches_that_continue(records: memoryview, end_offset: int) -> list[BatchHeader]:
    """Returns the batches in `records`, which continue at `end_offset`; raises if one of them does
    not."""
    batches = []
    position = 0
    while position < len(records):
        size = whole_batch_size(records[position:])
        if size is None or size < HEADER_SIZE or records[position + MAGIC_AT] != MAGIC:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "torn or old batches cannot be appended")
        batch = header_at(records, position, position)
        if crc32c(records[position + ATTRIBUTES_AT : position + size]) != batch.crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a batch fails its checksum")
        if batch.base_offset < end_offset or batch.last_offset < batch.base_offset:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"offsets {batch.base_offset} to {batch.last_offset}, the log ends at {end_offset}",
            )
        batches.append(batch)
        end_offset = batch.last_offset + 1
        position += size
    return batches
