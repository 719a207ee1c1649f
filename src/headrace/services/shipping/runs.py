"""Records of one file that are handed to the producer together, and how their end is heard.

A call for each record that is written is up to half of what a producer costs (measured), so
the producer calls only for records that fail (`delivery.report.only.error`). The callback object
itself shows that all have ended: all records of a run have the same one, librdkafka holds a
reference to it for each record until that record has ended, and when the last reference is gone,
CPython finalizes it at once.

A run counts as written if it has ended, all of it was taken, and none has failed. Nothing else
may hold the callback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.client.producer.producer import ANY_PARTITION, NOW, REFUSED
from headrace.services.shipping.followed import Followed, Sent
from headrace.services.shipping.records import Record, shortened
from headrace.wire.contract.headers import MESSAGE_ID

POLL_MASK = 255  # polls with each so-manieth record, as a mask


class Run:
    """`records` go under one key; `sent` is the end of the last one."""

    __slots__ = ("failures", "followed", "has_ended", "key", "records", "sent", "taken")

    def __init__(self, followed: Followed, key: bytes, records: list[Record], end: int) -> None:
        self.followed, self.key, self.records = followed, key, records
        self.sent: Sent = followed.sending(end)
        self.begin()

    def begin(self) -> None:
        self.taken = 0  # records that the producer took
        self.failures = 0  # records taken, of which it reported that they are not written
        self.has_ended = False  # all its records have ended

    @property
    def is_written(self) -> bool:
        return self.has_ended and self.taken == len(self.records) and not self.failures

    @property
    def unwritten(self) -> int:
        """How many records are not written; all of them until each outcome is known."""
        known = self.taken - self.failures if self.has_ended else 0
        return len(self.records) - known

    def take(
        self, produce: Callable[..., None], poll: Callable[[float], int], topic: str, ending: Ending
    ) -> None:
        """Hands over as many records as librdkafka has room for, up to one that it refuses."""
        key, taken = self.key, self.taken
        try:
            for value, id in self.records[taken:] if taken else self.records:
                produce(topic, value, key, ANY_PARTITION, ending, None, NOW, [(MESSAGE_ID, id)])
                taken += 1
                if not taken & POLL_MASK:
                    poll(0)
        except (BufferError, *REFUSED):
            pass  # the shipper hands over the next one by itself, and hears why
        self.taken = taken

    def shorten(self, number: int) -> bool:
        """Shortens the record at this place, for a topic that takes less. Returns False if it
        cannot be shorter."""
        value, id = self.records[number]
        shorter = shortened(value)
        if len(shorter) >= len(value):
            return False
        self.records[number] = (shorter, id)
        return True

    def number_of(self, value: bytes | None) -> int | None:
        """Values have their ids in them, so no two are alike."""
        numbers = (number for number, record in enumerate(self.records) if record[0] == value)
        return next(numbers, None)


class Ending:
    """The callback of all records of a run; `ended` gets the run when all have ended."""

    __slots__ = ("_ended", "_fail", "run")

    def __init__(
        self, run: Run, ended: list[Run], fail: Callable[[Ending, object, Any], None]
    ) -> None:
        self.run, self._ended, self._fail = run, ended, fail

    def __call__(self, error: object, message: Any) -> None:
        if error is None:
            return  # someone set delivery.report.only.error to false
        # First of all: even if this call fails later, the record counts as failed.
        self.run.failures += 1
        self._fail(self, error, message)

    def __del__(self) -> None:
        self.run.has_ended = True
        self._ended.append(self.run)
