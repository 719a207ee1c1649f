"""A worker's membership in its group: its consumer's settings, and how long it counts as a member.

The settings of the app win over those here, unless they would break the worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.app.observation.failure_log import wait_text
from headrace.client.connection import ClientSettings, program_settings
from headrace.client.producer.no_loss import NO_REBOOTSTRAP

SESSION_TIMEOUT_MS = 10_000
# The polling thread never waits for a handler, so if it is silent for so long it is stuck. Kafka's
# own limit of five minutes is also how long a rebalance of all others would wait for it.
LONGEST_SILENCE_MS = 120_000
OF_THE_CLASSIC_PROTOCOL = (
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)


@dataclass(slots=True)
class Membership:
    settings: dict[str, Any]  # of the consumer, librdkafka's
    lease_s: float  # without a poll for this long, the group may have removed us
    session_text: str  # how long the group keeps the partitions of a member that died

    @classmethod
    def of(cls, connection: ClientSettings, *, group: str, fetch_wait_ms: int) -> Membership:
        settings = program_settings(
            connection,
            {
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1_000,  # the next heartbeat learns of a rebalance
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": fetch_wait_ms,
                # When the local queue is full the next fetch waits; its default of a second is too
                # long.
                "fetch.queue.backoff.ms": 20,
                # With its default librdkafka may forget the only broker when that one restarts.
                "metadata.recovery.strategy": NO_REBOOTSTRAP,
            },
        )
        session_ms = int(settings.get("session.timeout.ms", SESSION_TIMEOUT_MS))
        settings.setdefault("max.poll.interval.ms", max(LONGEST_SILENCE_MS, session_ms))
        lease_s = session_ms / 1000 * 0.8
        session_text = wait_text(session_ms)
        if settings.get("group.protocol") == "consumer":  # the broker decides these (KIP-848)
            session_text = "the broker's group.consumer.session.timeout.ms (45 s by default)"
            for name in OF_THE_CLASSIC_PROTOCOL:
                settings.pop(name, None)
        return cls(settings, lease_s, session_text)
