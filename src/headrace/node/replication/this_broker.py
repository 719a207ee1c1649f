"""The state that all replicas of one broker share: its identity, the other brokers, its replication
settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.node.metadata.image import BrokerImage
from headrace.node.replication.isr_changes import IsrChanges

NOT_CHECKED = -1  # a broker epoch that is not compared


@dataclass(slots=True)
class ReplicationSettings:
    """Named after Kafka's settings, with its defaults."""

    lag_time_max_ms: int = 30_000  # replica.lag.time.max.ms
    fetch_max_bytes: int = 1 << 20  # replica.fetch.max.bytes, of one partition
    fetch_response_max_bytes: int = 10 << 20  # replica.fetch.response.max.bytes
    fetch_wait_max_ms: int = 500  # replica.fetch.wait.max.ms
    fetch_min_bytes: int = 1  # replica.fetch.min.bytes
    fetch_backoff_ms: int = 1_000  # replica.fetch.backoff.ms
    socket_timeout_ms: int = 30_000  # replica.socket.timeout.ms


def replication_settings(values: Mapping[str, Any]) -> ReplicationSettings:
    """Returns the settings of replication from a broker's settings by Kafka's names."""
    return ReplicationSettings(
        lag_time_max_ms=values["replica.lag.time.max.ms"],
        fetch_max_bytes=values["replica.fetch.max.bytes"],
        fetch_response_max_bytes=values["replica.fetch.response.max.bytes"],
        fetch_wait_max_ms=values["replica.fetch.wait.max.ms"],
        fetch_min_bytes=values["replica.fetch.min.bytes"],
        fetch_backoff_ms=values["replica.fetch.backoff.ms"],
        socket_timeout_ms=values["replica.socket.timeout.ms"],
    )


@dataclass(slots=True)
class ThisBroker:
    id: int
    epoch: int = NOT_CHECKED  # of this start's registration
    # From the newest metadata, this broker included.
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    settings: ReplicationSettings = field(default_factory=ReplicationSettings)
    isr_changes: IsrChanges = field(default_factory=IsrChanges)
    isr_shrinks: int = 0  # that the controller agreed to
    isr_expands: int = 0
    # A replica here is perhaps not fit to lead: `in_sync_upkeep.py` looks at the next tick.
    looks_soon: bool = False
    # Data folders whose disks refuse appends, with the reason; most of the time there is none.
    refusing: dict[str, str] = field(default_factory=dict)
    # Called when a follower's replica was flushed: its next fetch may confirm those records.
    on_flushed: Callable[[Any], None] = lambda replica: None
    # Whether a follower's replica must not fetch now: it is throttled, and not in sync.
    is_held_back: Callable[[Any, int], bool] = lambda replica, now_ms: False

    def refusal_of(self, folder: str) -> str:
        """Returns why nothing can be appended to the log in `folder`; an empty text if that is not
        known."""
        for refusing, why in self.refusing.items():
            if folder.startswith(f"{refusing}/"):
                return why
        return ""

    def may_join_isr(self, broker_id: int, fetched_epoch: int | None, directory: bytes) -> bool:
        """Returns whether the broker is unfenced and not shutting down, and is in the same start as
        when it fetched: one that was killed and restarted since may have lost what it had fetched
        before. Its replica may not be in a data folder that has failed either: it will never fetch
        again."""
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.alive or fetched_epoch is None:
            return False
        if not broker.has_directory(directory):
            return False
        return fetched_epoch in (NOT_CHECKED, broker.epoch)

    def is_outdated(self, broker_id: int, fetched_epoch: int) -> bool:
        """A fetch of an earlier start of that broker, which was long on its way."""
        broker = self.brokers.get(broker_id)
        return fetched_epoch != NOT_CHECKED and broker is not None and broker.epoch > fetched_epoch
