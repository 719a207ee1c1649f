"""The bounds of a batch: on counts, on decompressed bytes, on records that are read.

A client's header is believed only as far as its payload can bear it out. Batches that a leader, a
quorum or compaction wrote have no such bounds: they may have fewer records than offsets, and they
were checked when a client sent them.
"""

from __future__ import annotations

from headrace.wire.protocol.record_batch.header import SMALLEST_RECORD

# The largest decompressed size of a batch whose records must be read: as much as the largest
# request Apache Kafka takes by default. More is an attack.
MAX_DECOMPRESSED = 100 << 20
# The smallest records that there are (7 to 9 bytes, offset deltas that count up) reach 1.83 in a
# byte of zstd, 0.75 of gzip, 0.25 of lz4 and snappy (10 to 1,000,000 records, all levels tried).
RECORDS_PER_COMPRESSED_BYTE = 8
# The loop looks into no more records of one batch. A megabyte, the default of `max.message.bytes`,
# holds 150,000 uncompressed ones; this many take about a tenth of a second.
MOST_RECORDS_LOOKED_AT = 250_000
# A refusal names the records that it is about up to these; above, it is about the batch.
MOST_RECORDS_NAMED = 10_000
MOST_BYTES_NAMED = 1 << 20


def count_fits(record_count: int, payload_size: int, *, compressed: bool) -> bool:
    """Returns whether a payload of this size, as stored in the batch, can hold so many records."""
    if compressed:
        return record_count <= payload_size * RECORDS_PER_COMPRESSED_BYTE
    return record_count * SMALLEST_RECORD <= payload_size
