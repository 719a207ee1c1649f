"""Cancel a delayed message and hear what became of the wish.

The outcome is decided and written by the delay service in the transaction that settles it:
"cancelled" means that the message is never visible to read_committed consumers, "too-late" that it
was delivered, "unknown" that nothing of that id waits in the partition. It is awaited in the topic
of outcomes, so this works wherever the service runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from headrace.client.connection import Connection
from headrace.client.consumer import Consumer
from headrace.client.errors import ClientError
from headrace.client.groups import Groups
from headrace.client.producer import Producer
from headrace.client.records import Record, Sent, TopicPartition
from headrace.contract import headers
from headrace.contract.delay_topics import outcomes_of

LONGEST_POLL_S = 0.5


class NoOutcome(ClientError):
    """The wish is written, and nobody has settled it in time."""


@dataclass(slots=True)
class Cancelled:
    """What became of a cancel; `outcome` is "cancelled", "too-late" or "unknown"."""

    topic: str
    id: str
    outcome: str
    partition: int
    offset: int  # of the wish, in the companion

    @property
    def in_time(self) -> bool:
        return self.outcome == headers.CANCELLED


def cancel_and_wait(
    connection: Connection,
    topic: str,
    id: str,
    *,
    key: bytes | str | None = None,
    partition: int | None = None,
    timeout_s: float = 10.0,
) -> Cancelled:
    """Send the wish, then read outcomes from where they ended before it."""
    deadline = time.monotonic() + timeout_s
    with Producer(connection) as producer, Consumer(connection) as outcomes:
        producer.companions.require(topic)
        groups = Groups(connection)
        ends = groups.ends(groups.partitions_of(outcomes_of(topic)))
        outcomes.assign({TopicPartition(*place): end for place, end in ends.items()})
        wish = producer.cancel(topic, id, key=key, partition=partition).result(timeout_s)
        while (left_s := deadline - time.monotonic()) > 0:
            record = outcomes.poll(min(left_s, LONGEST_POLL_S))
            if record is not None and is_about(record, wish):
                said = record.header(headers.OUTCOME) or b""
                return Cancelled(topic, id, said.decode(), wish.partition, wish.offset)
    raise NoOutcome(
        f"The wish to cancel {id} is written to {wish.topic}, and no delay service has settled it "
        f"within {timeout_s:g} seconds. See with `headrace delay stats` whether one runs; the wish "
        "counts as soon as one does."
    )


def is_about(record: Record, wish: Sent) -> bool:
    """Whether an outcome answers this wish."""
    asked = f"{wish.topic}/{wish.partition}/{wish.offset}"
    return record.header(headers.SOURCE) == asked.encode()
