"""The polling thread of queues: a share consumer per subscription; it never waits for handlers.

It takes as many records as its handlers can begin soon, renews the locks of all that it holds, and
acknowledges them as the dispatcher decides: accepted when handled, released after the wait of a
failed attempt, rejected when the dead letter is written. Records whose lock was lost do not begin.
The retry topic is read too: `headrace dead-letters redrive` puts a letter for this group there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from headrace.app.dispatch.owned_partition import Acknowledgement, OwnedPartition, Stream
from headrace.app.names import retry_topic
from headrace.app.worker.subscription_runner import SubscriptionRunner
from headrace.client.connection import ClientSettings
from headrace.client.records import HeaderList
from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.delivery_limit import raised_delivery_limit
from headrace.client.share.share_consumer import ShareConsumer
from headrace.wire.protocol.uuids import to_text

log = logging.getLogger("headrace.app")

IDLE_POLL_S = 0.05
BUSY_POLL_S = 0.002
LAST_ANSWER_S = 5.0
# Records that can be handled within this time are fetched ahead; a slow handler has none waiting,
# so that another worker can take them.
AHEAD_S = 0.2
MOST_AHEAD = 1_000
# The rest of a lock's time at its renewal: the fetch that is under way may take half a second.
RENEW_AT = 0.5
LOOK_AT_LOCKS_S = 0.25

Place = tuple[str, int]
Key = tuple[str, int, int]  # topic, partition, offset


class Delivery:
    """A record as the dispatcher reads it, and its lock."""

    __slots__ = ("lock_s", "share")

    def __init__(self, share: ShareRecord, now: float) -> None:
        self.share = share
        self.lock_s = share.locked_until - now

    def offset(self) -> int:
        return self.share.offset

    def key(self) -> bytes | None:
        return self.share.key

    def value(self) -> bytes | None:
        return self.share.value

    def timestamp(self) -> tuple[int, int]:
        at_ms = self.share.timestamp_ms
        return (0, -1) if at_ms is None else (1, at_ms)

    def delivery_count(self) -> int:
        return self.share.delivery_count

    @property
    def identity(self) -> Key:
        return self.share.topic, self.share.partition, self.share.offset


def headers_of(delivery: Delivery) -> HeaderList:
    return list(delivery.share.headers)


class QueueIntake:
    """For workers whose subscriptions are queues; `WorkerIntake` is its sibling for groups."""

    def __init__(
        self,
        connection: ClientSettings,
        *,
        group: str,
        start_from: Literal["earliest", "latest"],
        runners: Sequence[SubscriptionRunner],
        loop_work: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._group = group
        self._start_from = start_from
        self._runners = runners
        self._loop_work = loop_work
        self._queues: list[_Queue] = []
        self.assigned_once = False
        self.stopping = False
        self.session_text = "the duration of a lock (share.record.lock.duration.ms)"

    @property
    def owned(self) -> dict[Place, OwnedPartition]:
        return {place: owned for queue in self._queues for place, owned in queue.owned.items()}

    @property
    def must_hurry(self) -> bool:
        """Always False: queues have no transactions to continue."""
        return False

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the share group. Raises NoShareGroups if the cluster has none."""
        try:
            self._join(list(topics))
        except BaseException:
            self.close()
            raise

    def _join(self, topics: list[str]) -> None:
        # Join first: joining fails if the cluster has no share groups.
        for runner in self._runners:
            names = [topic for topic in topics if runner.subscription.matches(topic)]
            if names:
                consumer = ShareConsumer(
                    self._connection,
                    topics=[*names, *(retry_topic(name, self._group) for name in names)],
                    group=self._group,
                    start_from=self._start_from,
                )
                self._queues.append(_Queue(runner, consumer, names, self._group))
        attempts = max(runner.subscription.retry.attempts for runner in self._runners)
        limit = raised_delivery_limit(self._connection, self._group, attempts + 1)
        for runner in self._runners:
            runner.dispatcher.delivery_limit = limit if runner.subscription.dead_letters else None

    # ---- the loop

    def run(self) -> None:
        hurry = True
        while not self.stopping:
            self._turn(BUSY_POLL_S if hurry else IDLE_POLL_S)
            hurry = self._loop_work()

    def _turn(self, timeout_s: float, *, reads: bool = True) -> None:
        for queue in self._queues:
            queue.acknowledge()
            queue.look_at_locks()
            queue.read(timeout_s / len(self._queues), reads=reads)
        if not self.assigned_once:
            self.assigned_once = all(queue.consumer.assigned for queue in self._queues)

    # ---- the end

    def drain(self, within_s: float) -> None:
        """Begin no more records, wait for running ones, acknowledge them and leave the group."""
        deadline = time.monotonic() + within_s
        for queue in self._queues:
            for owned in queue.owned.values():
                queue.runner.close(owned)
        while any(owned.running > 0 for owned in self.owned.values()):
            if time.monotonic() > deadline:
                break
            self._turn(BUSY_POLL_S, reads=False)
            self._loop_work()
        for queue in self._queues:
            queue.acknowledge()
            queue.consumer.commit(LAST_ANSWER_S)
            queue.look_at_refused()
        self.close()

    def close(self) -> None:
        """Leave the group; what is not acknowledged goes to other workers at once."""
        for queue in self._queues:
            for owned in queue.owned.values():
                queue.runner.forget(owned)
            queue.runner.lease_until = float("inf")  # a slot that waits sees that it is over
            queue.consumer.close()


class _Queue:
    """One subscription with its consumer and all records that it holds."""

    def __init__(
        self, runner: SubscriptionRunner, consumer: ShareConsumer, topics: list[str], group: str
    ) -> None:
        self.runner, self.consumer = runner, consumer
        self.owned: dict[Place, OwnedPartition] = {}
        self._source = {topic: topic for topic in topics}
        self._source |= {retry_topic(topic, group): topic for topic in topics}
        self._held: dict[Key, Delivery] = {}
        self._look_at = 0.0

    def read(self, timeout_s: float, *, reads: bool) -> None:
        room = max(0, self._wanted() - self.runner.active()) if reads else 0
        records = self.consumer.poll(room, timeout_s)
        now = time.monotonic()
        found: dict[Place, list[Delivery]] = {}
        for record in records:
            delivery = Delivery(record, now)
            self._held[delivery.identity] = delivery
            found.setdefault((record.topic, record.partition), []).append(delivery)
        for place, deliveries in found.items():
            self.runner.read_queue(self._stream_at(place, deliveries[0]), deliveries)

    def _wanted(self) -> int:
        """How many records may wait for a slot or be in one."""
        subscription = self.runner.subscription
        least = subscription.concurrency * (subscription.batch or 1)
        stats = subscription.stats
        mean_s = stats.busy_seconds / stats.handled if stats.handled else AHEAD_S
        ahead = int(subscription.concurrency * AHEAD_S / max(mean_s, 1e-6))
        return max(least, min(ahead, MOST_AHEAD))

    def _stream_at(self, place: Place, delivery: Delivery) -> Stream:
        topic, partition = place
        source = self._source[topic]
        owned = self.owned.get((source, partition))
        if owned is None:
            topic_id = to_text(delivery.share.topic_id) if topic == source else None
            owned = self.runner.own_queue(source, partition, topic_id, headers_of)
            self.owned[source, partition] = owned
        elif topic == source:
            owned.topic_id = to_text(delivery.share.topic_id)
        return owned.source if topic == source else owned.retry

    def acknowledge(self) -> None:
        """Send the decided acknowledgements, except for records that are not ours any more."""
        acknowledge = {
            Acknowledgement.ACCEPT: self.consumer.accept,
            Acknowledgement.RELEASE: self.consumer.release,
            Acknowledgement.REJECT: self.consumer.reject,
        }
        for owned in self.owned.values():
            for native, how in self.runner.take_acknowledgements(owned):
                assert isinstance(native, Delivery)
                if self._held.get(native.identity) is native:
                    del self._held[native.identity]
                    acknowledge[how](native.share)

    def look_at_locks(self) -> None:
        """Renew locks that end soon; records whose lock has ended do not begin."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_AT_LOCKS_S
        self.look_at_refused()
        shortest_s = 2.0
        lost: set[Delivery] = set()
        for delivery in self._held.values():
            left_s = delivery.share.locked_until - now
            shortest_s = min(shortest_s, delivery.lock_s)
            if left_s <= 0 or not self.consumer.owns(delivery.share):
                lost.add(delivery)
            elif left_s < delivery.lock_s * RENEW_AT:
                self.consumer.renew(delivery.share)
        if lost:
            self._lose(lost)
        # After a standstill a process begins no record before it has checked the locks again.
        self.runner.lease_until = now + LOOK_AT_LOCKS_S + shortest_s / 4

    def look_at_refused(self) -> None:
        refused = self.consumer.take_refused()
        if refused:
            log.info(
                "%d acknowledgements of %s did not count, the first in %s-%d at offset %d: %s; "
                "the records are delivered again",
                len(refused), self.runner.subscription.name, refused[0].topic,
                refused[0].partition, refused[0].first_offset, refused[0].why,
            )  # fmt: skip

    def _lose(self, lost: set[Delivery]) -> None:
        for delivery in lost:
            del self._held[delivery.identity]
        self.runner.lost(lambda native: native in lost)
        log.info(
            "the locks of %d records of %s were lost; other workers get them",
            len(lost), self.runner.subscription.name,
        )  # fmt: skip
