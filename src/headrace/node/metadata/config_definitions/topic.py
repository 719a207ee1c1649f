"""The settings of a topic, those of Kafka 4.3, and the broker's settings that replace unset
ones."""

from __future__ import annotations

from dataclasses import replace

from headrace.node.metadata.config_definitions.definition import LONG_MAX, Definition, Synonym
from headrace.node.metadata.config_definitions.rows import (
    at_least,
    between,
    between_or,
    boolean,
    double,
    integer,
    internal,
    listing,
    long,
    one_of,
    some_of,
    string,
    throttled_replicas,
    unsupported,
    without_effect,
)

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DAY_MS = 24 * HOUR_MS

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")

# fmt: off
# A row is the setting and, below it, its sentence: easier to read than one argument per line.
_FILES = (
    integer("segment.bytes", 1024**3, at_least(1024**2),
        "Size at which a segment file is closed and the next begun; retention removes whole ones."),
    long("segment.ms", 7 * DAY_MS, at_least(1),
        "Age of a segment, by its records' timestamps, at which the next one is begun."),
    long("segment.jitter.ms", 0, at_least(0),
        "At most so much earlier than segment.ms, by chance, so that not all logs roll at once."),
    integer("segment.index.bytes", 10 * 1024**2, at_least(4),
        "Room for each index file, reserved while its segment is written and trimmed afterwards."),
    integer("index.interval.bytes", 4096, at_least(0),
        "One index entry is made for about so many bytes of records; smaller is quicker to find."),
    long("file.delete.delay.ms", MINUTE_MS, at_least(0),
        "Files that are no longer part of a log stay on disk for so long before they go."),
    *without_effect("segments grow as they are written",
        boolean("preallocate", False,
            "Reserve the whole segment on disk when it is begun."),
    ),
)
_DURABILITY = (
    long("flush.messages", LONG_MAX, at_least(1),
        "Flush to disk after so many records; by default the operating system decides."),
    long("flush.ms", LONG_MAX, at_least(0),
        "Flush to disk when records have waited for so long; by default the system decides."),
    integer("min.insync.replicas", 1, at_least(1),
        "With acks=all a write is refused unless so many replicas, leader included, are in sync."),
    *without_effect("a node of one has no other replica to elect",
        boolean("unclean.leader.election.enable", False,
            "Let a replica lead that may lack acknowledged records if no other is left."),
    ),
)
_RETENTION = (
    listing("cleanup.policy", ("delete",), some_of(*CLEANUP_POLICIES),
        "delete: remove old segments; compact: keep each key's last record; both; or neither."),
    long("retention.ms", 7 * DAY_MS, at_least(-1),
        "Segments whose newest record is older are removed (policy delete); -1 keeps all."),
    long("retention.bytes", -1, None,
        "Size of a partition above which its oldest segments are removed; -1 is no limit."),
    long("delete.retention.ms", DAY_MS, at_least(0),
        "How long a compacted topic keeps the markers of deleted keys for readers to see."),
    long("min.compaction.lag.ms", 0, at_least(0),
        "A record stays untouched by compaction for at least so long."),
    long("max.compaction.lag.ms", LONG_MAX, at_least(1),
        "After so long a record is compacted, whatever min.cleanable.dirty.ratio says."),
    double("min.cleanable.dirty.ratio", 0.5, between(0, 1),
        "Compaction begins when so large a share of the log has not been compacted yet."),
)
_RECORDS = (
    integer("max.message.bytes", 1024**2 + 12, at_least(0),
        "Largest record batch, as compressed, that the topic takes."),
    string("compression.type", "producer", one_of(*COMPRESSION_TYPES),
        "Compression on disk: the producer's own, none (uncompressed), or the one named here."),
    integer("compression.gzip.level", -1, between_or(1, 9, -1),
        "Effort of gzip where the broker compresses; -1 is the library's choice."),
    integer("compression.lz4.level", 9, between(1, 17),
        "Effort of lz4 where the broker compresses."),
    integer("compression.zstd.level", 3, between(-131072, 22),
        "Effort of zstd where the broker compresses."),
    string("message.timestamp.type", "CreateTime", one_of(*TIMESTAMP_TYPES),
        "Whose clock stamps the records: the producer's, or the broker's when it appends them."),
    long("message.timestamp.before.max.ms", LONG_MAX, at_least(0),
        "A producer's timestamp may be so much earlier than the broker's clock, or it is refused."),
    long("message.timestamp.after.max.ms", HOUR_MS, at_least(0),
        "A producer's timestamp may be so much later than the broker's clock, or it is refused."),
)
_REPLICATION = (
    listing("leader.replication.throttled.replicas", (), throttled_replicas,
        "Replicas (partition:broker, or *) whose leader sends to them within the throttled rate."),
    listing("follower.replication.throttled.replicas", (), throttled_replicas,
        "Replicas (partition:broker, or *) that fetch within the throttled rate."),
)
_TIERED = (
    *unsupported("tiered storage",
        boolean("remote.storage.enable", False,
            "Move closed segments of this topic to remote storage."),
    ),
    *without_effect("there is no tiered storage",
        long("local.retention.ms", -2, at_least(-2),
            "How long segments stay on local disk once they are in remote storage; -2: as long."),
        long("local.retention.bytes", -2, at_least(-2),
            "How many bytes stay on local disk once they are in remote storage; -2: as many."),
        boolean("remote.log.copy.disable", False,
            "Move no more segments to remote storage; what is there stays readable."),
        boolean("remote.log.delete.on.disable", False,
            "Remove what is in remote storage when the topic stops using it."),
    ),
)
# Headrace's own settings, listed only where they are set: answers about other topics equal Apache
# Kafka's.
_OWN = internal(
    boolean("headrace.validate.records", False,
        "Look at every record of a produced batch and refuse what no client could read."),
    boolean("headrace.skip.damaged", False,
        "Readers go on behind records that are damaged on the disk; otherwise reads of these are "
        "refused with CORRUPT_MESSAGE."),
)
_INTERNAL = internal(
    integer("internal.segment.bytes", None, None,
        "Overrides segment.bytes without its lower bound, for tests that need small segments."),
)
# fmt: on

# The broker's settings that hold for a topic without its own, best first.
_SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", HOUR_MS),
    ),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "preallocate": (Synonym("log.preallocate"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
}

TOPIC_SETTINGS: dict[str, Definition] = {
    row.name: replace(row, synonyms=_SYNONYMS.get(row.name, ()))
    for row in (
        *_FILES,
        *_DURABILITY,
        *_RETENTION,
        *_RECORDS,
        *_REPLICATION,
        *_TIERED,
        *_INTERNAL,
        *_OWN,
    )
}
