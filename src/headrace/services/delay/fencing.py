"""Ends open transactions that hold back partitions of ours: of instances that are gone or asleep.

In a thread of its own, because asking takes a while. Only transactions of our group's instances,
open for longer than any of ours takes, and only if they may touch the partitions in question.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from time import monotonic

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.transactional_ids import TransactionalIds
from headrace.contract import delay_topics
from headrace.services.delay.intake import Place

log = logging.getLogger("headrace.delay")

# A transaction of ours takes milliseconds; one that is open for longer has lost its owner.
STUCK_AFTER_S = 0.5
FENCE_AGAIN_S = 2.0


class Fencing:
    def __init__(self, connection: Connection, group: str, own: str) -> None:
        self._connection = connection
        self._prefix = f"{group}-"
        self._own = own
        self._again_at = 0.0
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
        for found in ids.all(["Ongoing"], longer_than_ms=int(STUCK_AFTER_S * 1000)):
            name = found.transactional_id
            if not name.startswith(self._prefix) or name == self._own:
                continue
            written = set(ids.describe(name).partitions)
            # Offsets alone may be those of our partitions.
            if written & held or all(topic == "__consumer_offsets" for topic, _ in written):
                log.warning("the transaction of %s is open for long: its producer is fenced", name)
                ids.abort(name)
