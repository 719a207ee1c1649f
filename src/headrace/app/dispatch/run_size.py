"""How many records a slot takes from a lane at once, and whether a batch waits for more of them.

Long runs cost less for each record; short ones share the work among slots and keep finished records
close together. Pure: time is an argument.
"""

from __future__ import annotations

from headrace.app.dispatch.lanes import Lanes
from headrace.app.dispatch.record_in_hand import RecordInHand
from headrace.app.dispatch.waits import BatchIsLate, Waits
from headrace.app.subscription import Subscription

# A slot takes at most this many records at once; with several slots and slow handlers one by one.
LONGEST_RUN = 256
QUICK_S = 0.0002
# With the order of keys a run takes about this long: a longer one would keep the other keys, and
# with them the committed offset, far behind.
KEY_RUN_S = 0.01
# Records of one exactly-once transaction.
LONGEST_TRANSACTION = 1_000


class RunSize:
    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.mean_s = 0.001  # of one attempt

    def learn(self, seconds: float, count: int) -> None:
        """Learn from `count` attempts that took `seconds` together."""
        self.mean_s += (seconds / count - self.mean_s) * 0.2

    def most(self, waiting: int) -> int:
        subscription = self._subscription
        if subscription.batch is not None:
            return subscription.batch
        if subscription.exactly_once:
            return LONGEST_TRANSACTION
        if subscription.order_by is None and subscription.concurrency > 1:
            if self.mean_s > QUICK_S:
                return 1
            return max(1, min(waiting // (2 * subscription.concurrency), LONGEST_RUN))
        if subscription.order_by == "key" and self.mean_s > QUICK_S:
            return max(1, min(int(KEY_RUN_S / self.mean_s), LONGEST_RUN))
        return LONGEST_RUN


class BatchWait:
    """An incomplete batch waits for more records, for a limited time."""

    def __init__(
        self, subscription: Subscription, lanes: Lanes[RecordInHand], waits: Waits
    ) -> None:
        self._wait_ms = subscription.batch_wait_ms if subscription.batch is not None else 0
        self._complete = subscription.batch or 0
        self._lanes, self._waits = lanes, waits
        self._until_ms: int | None = None  # when the waiting records are taken as they are
        self._late_runs = 0  # runs that need not wait any more

    def set_back(self, by_ms: int) -> None:
        """The same as `Waits.set_back`."""
        if self._until_ms is not None:
            self._until_ms -= by_ms

    def holds_back(self, now_ms: int) -> bool:
        """Whether no run may be taken yet."""
        if not self._wait_ms or self._late_runs:
            self._late_runs = max(0, self._late_runs - 1)
            return False
        if not self._lanes.waiting or self._lanes.waiting >= self._complete:
            self._until_ms = None
            return False
        if self._until_ms is None:
            self._until_ms = now_ms + self._wait_ms
            self._waits.add(self._until_ms, BatchIsLate())
        if now_ms < self._until_ms:
            return True
        self._until_ms = None
        # Each lane that waited can run now, also with few records.
        self._late_runs = max(0, self._lanes.ready - 1) if self._lanes.order_by else 0
        return False
