"""Ends open transactions that hold back partitions of ours: of instances that are gone or asleep.

In a thread of its own, because asking takes a while. Only transactions of our group's instances,
open for longer than any of ours takes, and only if they may touch the partitions in question.

Apache Kafka 4.3.1, killed while clients committed, was seen to leave offsets of a transaction that
its coordinator had closed (a hanging transaction, KIP-664): they hold back the partition
until somebody ends it. That is not done here: the one seen belonged to a transaction whose
deliveries were visible, so to abort its offsets delivered them once more. It is reported.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from time import monotonic

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.topics import Topics
from headrace.client.transactional_ids import TransactionalIds
from headrace.contract import delay_topics
from headrace.protocol.java_hash import partition_for_group
from headrace.services.delay.intake import Place

log = logging.getLogger("headrace.delay")

# A transaction of ours takes milliseconds; one that is open for longer has lost its owner.
STUCK_AFTER_S = 0.5
FENCE_AGAIN_S = 2.0
FORGOTTEN_AFTER_S = 3.0
OFFSETS_TOPIC = "__consumer_offsets"
# Of a producer without an open transaction: markers that are still to be written have others.
IDLE_STATES = ("Empty", "CompleteCommit", "CompleteAbort")


class Fencing:
    def __init__(self, connection: Connection, group: str, own: str) -> None:
        self._connection = connection
        self._prefix = f"{group}-"
        self._own = own
        self._again_at = 0.0
        self._suspected: dict[tuple[int, int], float] = {}  # producer id, start offset: since
        self._reported: set[tuple[int, int]] = set()
        self._thread: threading.Thread | None = None

    def fence(self, places: Iterable[Place]) -> None:
        now = monotonic()
        if now < self._again_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._again_at = now + FENCE_AGAIN_S
        self._thread = threading.Thread(
            target=self._run, args=(list(places),), name="headrace-delay-fencing", daemon=True
        )
        self._thread.start()

    def _run(self, places: list[Place]) -> None:
        try:
            self._fence(places)
        except ClientError as failure:
            log.warning("an open transaction of another instance cannot be ended: %s", failure)

    def _fence(self, places: list[Place]) -> None:
        held = set()
        for companion, partition in places:
            target = delay_topics.target_of(companion)
            held |= {
                (target, partition),
                (delay_topics.rejected_of(target), partition),
                (delay_topics.outcomes_of(target), partition),
            }
        ids = TransactionalIds(self._connection)
        self._report_forgotten(ids)
        for found in ids.all(["Ongoing"], longer_than_ms=int(STUCK_AFTER_S * 1000)):
            name = found.transactional_id
            if not name.startswith(self._prefix) or name == self._own:
                continue
            written = set(ids.describe(name).partitions)
            # Offsets alone may be those of our partitions.
            if written & held or all(topic == OFFSETS_TOPIC for topic, _ in written):
                log.warning("the transaction of %s is open for long: its producer is fenced", name)
                ids.abort(name)

    def _report_forgotten(self, ids: TransactionalIds) -> None:
        offsets = Topics(self._connection).cluster.topics.get(OFFSETS_TOPIC)
        if offsets is None:
            return
        partition = partition_for_group(self._prefix[:-1], len(offsets.partitions))
        idle = {
            found.producer_id: found.transactional_id
            for found in ids.all(IDLE_STATES)
            if found.transactional_id.startswith(self._prefix)
        }
        now = monotonic()
        suspected = {}
        for each in ids.open_in(OFFSETS_TOPIC, partition):
            if each.producer_id not in idle:
                continue
            place = each.producer_id, each.start_offset
            since = suspected[place] = self._suspected.get(place, now)
            if now - since >= FORGOTTEN_AFTER_S and place not in self._reported:
                self._reported.add(place)
                log.error(
                    "%s-%d holds offsets of %s (producer %d, from offset %d) in a transaction that "
                    "its coordinator has closed: compare with what was delivered, then end it with "
                    "`headrace transactions`",
                    *(OFFSETS_TOPIC, partition, idle[each.producer_id], *place),
                )
        self._suspected = suspected
