"""The settings of one log, by Kafka's topic settings; the defaults are those of Apache Kafka 4.3.

A `LogSettings` is not changed in place: a change of configuration gives the log a new one, so that
what is worked out here once per change costs nothing per append.
Not honoured: `preallocate` (of the log file; index files always are).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

UNLIMITED = 2**63 - 1
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(slots=True)
class LogSettings:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000  # -1: for ever
    retention_bytes: int = -1  # -1: no limit
    local_retention_ms: int = -2  # -2: as retention_ms
    local_retention_bytes: int = -2
    file_delete_delay_ms: int = 60_000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1_048_588
    timestamp_type: str = CREATE_TIME
    timestamp_before_max_ms: int = UNLIMITED
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = UNLIMITED
    flush_ms: int = UNLIMITED
    preallocate: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    delete_retention_ms: int = 24 * 3600 * 1000
    producer_id_expiration_ms: int = 86_400_000
    skip_damaged: bool = False  # readers go on behind damage instead of being refused
    validates_records: bool = False

    # Worked out from the above.
    stamps_append_time: bool = field(init=False)
    needs_keys: bool = field(init=False)
    # Batches go into the log unchanged: they need not be stamped, checked or compressed again.
    takes_batches_as_they_are: bool = field(init=False)

    def __post_init__(self) -> None:
        self.stamps_append_time = self.timestamp_type == LOG_APPEND_TIME
        self.needs_keys = "compact" in self.cleanup_policy
        if self.needs_keys:
            # The active segment is never compacted, so it must end in time (KIP-354).
            self.segment_ms = min(self.segment_ms, self.max_compaction_lag_ms)
        self.takes_batches_as_they_are = (
            not self.stamps_append_time
            and not self.needs_keys
            and self.compression_type == "producer"
            and self.timestamp_before_max_ms == UNLIMITED
            and not self.validates_records
        )

    def jitter_ms(self, folder: str, base_offset: int) -> int:
        """Spreads the rolls of many logs over `segment.jitter.ms`; the same number each time."""
        most = min(self.segment_jitter_ms, self.segment_ms)
        return crc32(f"{folder}/{base_offset}".encode()) % most if most > 0 else 0
