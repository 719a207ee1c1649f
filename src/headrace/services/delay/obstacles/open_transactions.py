"""Ends open transactions that hold back partitions of ours: of instances that are gone or asleep.

In a thread of its own, because asking takes a while. Only transactions of our group's instances,
open for longer than any of ours takes, and only if they may touch the partitions in question.

Offsets of a transaction that its coordinator has closed, without their marker, are ended as it was
decided (`evidence.py`). As long as one of our own producer is there, nothing new may be
begun: its marker would end both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from time import monotonic

from headrace.client.admin.topics import Topics
from headrace.client.admin.transactional_ids import OpenTransaction, TransactionalIds
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.services.delay.intake import Place
from headrace.services.delay.obstacles.evidence import (
    OFFSETS_TOPIC,
    decide,
    end,
    read_held,
)
from headrace.services.delay.partitions.inquiry import STUCK_AFTER_S
from headrace.wire.contract import delay_topics
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.java_hash import partition_for_group

log = logging.getLogger("headrace.delay")

FENCE_AGAIN_S = 2.0
FORGOTTEN_AFTER_S = 3.0
# States of a producer with an open transaction, or of one whose markers are being written.
BUSY_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Fencing:
    def __init__(self, connection: ClientSettings, group: str, own: str) -> None:
        self._connection = connection
        self._group = group
        self._prefix = f"{group}-"
        self._own = own
        self._again_at = 0.0
        self._suspected: dict[tuple[int, int], float] = {}  # producer id, start offset: since
        self._reported: set[str] = set()
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
        except (ClientError, MalformedMessage) as failure:
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
        self._end_forgotten(ids)
        for found in ids.all(["Ongoing"], longer_than_ms=int(STUCK_AFTER_S * 1000)):
            name = found.transactional_id
            if not name.startswith(self._prefix) or name == self._own:
                continue
            written = set(ids.describe(name).partitions)
            # Offsets alone may be those of our partitions.
            if written & held or all(topic == OFFSETS_TOPIC for topic, _ in written):
                log.warning("the transaction of %s is open for long: its producer is fenced", name)
                ids.abort(name)

    def own_hangs(self) -> bool:
        """Whether our own producer has offsets that were never ended. Asks the cluster."""
        ids = TransactionalIds(self._connection)
        partition = self._offsets_partition()
        if partition is None:
            return False
        own = ids.describe(self._own).producer_id
        return any(each.producer_id == own for each in ids.open_in(OFFSETS_TOPIC, partition))

    def _offsets_partition(self) -> int | None:
        offsets = Topics(self._connection).cluster.topics.get(OFFSETS_TOPIC)
        if offsets is None:
            return None
        return partition_for_group(self._group, len(offsets.partitions))

    def _end_forgotten(self, ids: TransactionalIds) -> None:
        partition = self._offsets_partition()
        if partition is None:
            return
        busy = {found.producer_id for found in ids.all(BUSY_STATES)}
        now = monotonic()
        suspected = {}
        for each in ids.open_in(OFFSETS_TOPIC, partition):
            if each.producer_id in busy:
                continue
            place = each.producer_id, each.start_offset
            since = suspected[place] = self._suspected.get(place, now)
            if now - since >= FORGOTTEN_AFTER_S:
                self._end(ids, partition, each)
        self._suspected = suspected

    def _end(self, ids: TransactionalIds, partition: int, found: OpenTransaction) -> None:
        what = (
            f"{OFFSETS_TOPIC}-{partition} holds offsets of producer {found.producer_id}, epoch "
            f"{found.producer_epoch}, from offset {found.start_offset} in a transaction that its "
            "coordinator has closed"
        )
        try:
            left = read_held(self._connection, partition, found, self._group)
            if left is None:
                return
            names = [each for each in ids.all() if each.producer_id == found.producer_id]
            known = ids.describe(names[0].transactional_id) if names else None
            if known is not None and known.state in BUSY_STATES:
                return
            decision = decide(self._connection, self._group, left, known)
            count = end(ids, left, decision)
        except (ClientError, MalformedMessage) as failure:
            if what not in self._reported:
                self._reported.add(what)
                log.error("%s. What was decided cannot be seen, so it waits: %s", what, failure)
            return
        if not count:
            return  # another instance was faster
        word = "commit" if decision.commit else "abort"
        log.warning("%s. %d %s markers are written: %s", what, count, word, decision.why)
