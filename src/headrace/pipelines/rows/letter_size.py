"""Dead letters that fit into their topic: a larger record is cut and marked.

A letter is its record with more headers, so it may be larger than the topic takes, and a batch with
one that is refused would never end. A letter that was cut has the beginning of the value and
`headrace-dead-cut` with the size of the record and the SHA-256 of its value; the other headers say
where the whole record is. The record's own headers and a long key are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.wire.contract.headers import DEAD_CUT

if TYPE_CHECKING:
    from pyspark.sql import Column

SETTING = "max.message.bytes"
DEFAULT_BYTES = 1_048_588  # of Kafka
# A producer keeps a letter in memory once or twice, in each task.
MOST_BYTES = 64 << 20
# More than a batch of one record adds, and its header of a letter that was cut.
MARGIN_BYTES = 1_024
LONGEST_KEY_BYTES = 1_024
# The headers of a letter beside those of its record, with the longest reason.
HEADERS_BYTES = 8_192
LONGEST_REASON = 1_000  # characters: it may quote a value
PRODUCER_MEMORY_BYTES = 32 << 20  # of Kafka


def limit_of(settings: dict[str, str]) -> int:
    """How large a letter may be, by the settings of its topic, as far as they are known."""
    return min(MOST_BYTES, int(settings.get(SETTING, DEFAULT_BYTES)))


def producer_options(limit: int) -> dict[str, str]:
    """For Spark's Kafka sink: its producer takes what the topic takes."""
    return {
        "kafka.max.request.size": str(limit + MARGIN_BYTES),
        "kafka.buffer.memory": str(max(PRODUCER_MEMORY_BYTES, 2 * limit)),
    }


def shortened(reason: Column) -> Column:
    from pyspark.sql import functions as F

    cut = F.concat(F.left(reason, F.lit(LONGEST_REASON)), F.lit("..."))
    return F.when(F.length(reason) > LONGEST_REASON, cut).otherwise(reason)


def fitted(own: Column, said: Column, limit: int) -> dict[str, Column]:
    """Returns the columns key, value and headers of a letter of at most `limit` bytes. `own` are
    the record's headers, `said` are those that the letter adds."""
    from pyspark.sql import functions as F

    key, value = F.col("key"), F.col("value")
    key_bytes = F.coalesce(F.octet_length(key), F.lit(0))
    record = key_bytes + F.coalesce(F.octet_length(value), F.lit(0)) + _header_bytes(own)
    said_bytes = _header_bytes(said)
    too_large = record + said_bytes + MARGIN_BYTES > limit
    has_key = key_bytes <= LONGEST_KEY_BYTES
    left = F.lit(limit - 2 * MARGIN_BYTES) - said_bytes - F.when(has_key, key_bytes).otherwise(0)
    room = F.greatest(F.lit(0), left)
    facts = F.to_json(F.struct(record.alias("bytes"), F.sha2(value, 256).alias("sha256")))
    cut = F.struct(F.lit(DEAD_CUT).alias("key"), facts.cast("binary").alias("value"))
    return {
        "key": F.when(~too_large | has_key, key),
        "value": F.when(too_large, F.substring(value, 1, room)).otherwise(value),
        "headers": F.when(too_large, F.concat(said, F.array(cut))).otherwise(F.concat(own, said)),
    }


def _header_bytes(headers: Column) -> Column:
    """Returns the size of the headers, with the lengths that precede each name and value."""
    from pyspark.sql import functions as F

    def more(size: Column, one: Column) -> Column:
        value = F.coalesce(F.octet_length(one["value"]), F.lit(0))
        return size + F.octet_length(one["key"]) + value + 10

    return F.aggregate(headers, F.lit(0), more)
