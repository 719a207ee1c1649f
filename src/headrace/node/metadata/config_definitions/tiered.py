"""The broker's settings of tiered storage (KIP-405), which Headrace does not support yet."""

from __future__ import annotations

from headrace.node.metadata.config_definitions.definition import LONG_MAX, Definition
from headrace.node.metadata.config_definitions.rows import (
    CLUSTER_WIDE,
    at_least,
    between,
    boolean,
    double,
    integer,
    internal,
    long,
    string,
    unsupported,
    without_effect,
)

_WHAT = "tiered storage"


def _not_empty(value: str) -> str | None:
    return None if value else "must not be empty"


# fmt: off
_STORAGE = unsupported(_WHAT,
    boolean("remote.log.storage.system.enable", False,
        "Move closed segments to remote storage, for topics that ask for it."),
    string("remote.log.storage.manager.impl.prefix", "rsm.config.", _not_empty,
        "Beginning of the settings that are for the storage plug-in."),
    string("remote.log.metadata.manager.impl.prefix", "rlmm.config.", _not_empty,
        "Beginning of the settings that are for the metadata plug-in."),
    string("remote.log.storage.manager.class.name", None, _not_empty,
        "Class of the storage plug-in."),
    string("remote.log.storage.manager.class.path", None, None,
        "Where the storage plug-in is loaded from."),
    string("remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        _not_empty,
        "Class of the metadata plug-in."),
    string("remote.log.metadata.manager.class.path", None, None,
        "Where the metadata plug-in is loaded from."),
    string("remote.log.metadata.manager.listener.name", None, _not_empty,
        "Listener that the metadata plug-in connects to."),
    integer("remote.log.metadata.custom.metadata.max.bytes", 128, at_least(0),
        "Most bytes that the storage plug-in may add to a segment's metadata."),
)
# These settings say how the work is done, not whether it is wanted: the switch above decides that.
_WORK = without_effect("tiered storage is not supported, so there is no such work",
    long("remote.log.index.file.cache.total.size.bytes", 1024**3, at_least(1),
        "Room on local disk for indexes of remote segments.", CLUSTER_WIDE),
    integer("remote.log.manager.thread.pool.size", 2, at_least(1),
        "Older name of the follower threads' number."),
    integer("remote.log.manager.copier.thread.pool.size", 10, at_least(1),
        "Threads that copy segments to remote storage.", CLUSTER_WIDE),
    integer("remote.log.manager.expiration.thread.pool.size", 10, at_least(1),
        "Threads that remove old remote segments.", CLUSTER_WIDE),
    integer("remote.log.manager.follower.thread.pool.size", 2, at_least(1),
        "Threads that keep followers informed of remote segments.", CLUSTER_WIDE),
    long("remote.log.manager.task.interval.ms", 30_000, at_least(1),
        "How often there is looked for segments to copy or remove."),
    integer("remote.log.reader.threads", 10, at_least(1),
        "Threads that read remote segments.", CLUSTER_WIDE),
    integer("remote.log.reader.max.pending.tasks", 100, at_least(1),
        "Remote reads that may wait."),
    long("remote.log.manager.copy.max.bytes.per.second", LONG_MAX, at_least(1),
        "Most bytes per second copied to remote storage.", CLUSTER_WIDE),
    integer("remote.log.manager.copy.quota.window.num", 11, at_least(1),
        "Windows over which the copy rate is measured."),
    integer("remote.log.manager.copy.quota.window.size.seconds", 1, at_least(1),
        "Length of each of these windows."),
    long("remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, at_least(1),
        "Most bytes per second read from remote storage.", CLUSTER_WIDE),
    integer("remote.log.manager.fetch.quota.window.num", 11, at_least(1),
        "Windows over which the read rate is measured."),
    integer("remote.log.manager.fetch.quota.window.size.seconds", 1, at_least(1),
        "Length of each of these windows."),
    integer("remote.fetch.max.wait.ms", 500, at_least(1),
        "How long a fetch waits for remote storage.", CLUSTER_WIDE),
    long("remote.list.offsets.request.timeout.ms", 30_000, at_least(1),
        "How long a lookup by time waits for remote storage.", CLUSTER_WIDE),
)
_INTERNAL = internal(*unsupported(_WHAT,
    long("remote.log.index.file.cache.ttl.ms", 900_000, at_least(-1),
        "How long an unused index of a remote segment stays on local disk."),
    long("remote.log.manager.task.retry.backoff.ms", 500, at_least(1),
        "First rest after work with remote storage failed."),
    long("remote.log.manager.task.retry.backoff.max.ms", 30_000, at_least(1),
        "Longest rest after work with remote storage failed."),
    double("remote.log.manager.task.retry.jitter", 0.2, between(0, 0.5),
        "Chance in these rests."),
))
# fmt: on

TIERED: tuple[Definition, ...] = (*_STORAGE, *_WORK, *_INTERNAL)
