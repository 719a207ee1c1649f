"""The message that a handler gets, and the results that it may return to be published.

A `Message` keeps its original place, id and timestamp through delay, retry and redrive; `read_from`
is the place of this very copy. `Publish` is a record to be written when the handler has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headrace.client.records import GivenHeaders, HeaderList, TopicPartition


@dataclass(slots=True)
class Message:
    """One record as a handler gets it."""

    topic: str  # where it was first read, also in a retry
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None  # as in the topic; None is a tombstone
    headers: HeaderList  # without those of the SDK
    timestamp_ms: int | None
    id: str  # the header headrace-message-id, else topic/partition/offset@topic id
    attempt: int  # 1 for the first
    read_from: TopicPartition  # in a retry, the retry topic's
    read_offset: int
    redrives: int = 0  # how often it came back from the dead letters

    def header(self, name: str) -> bytes | None:
        """The last header of this name; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    @property
    def origin(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(slots=True)
class Publish:
    """Return or yield it from a handler: `return Publish("invoices", invoice, key=order.id)`.

    The record it came from is done only when this one is written. With `delay` or `deliver_at` it
    is delivered later. Without a key it gets the key of the handled record.
    """

    topic: str
    value: Any
    key: bytes | str | None = None
    headers: GivenHeaders | None = None
    partition: int | None = None
    delay: timedelta | str | None = None
    deliver_at: datetime | int | str | None = None


class PartialFailure(Exception):
    """Raised by a handler of batches: the positions of the failed records; the others are done.

    `errors` may have an exception for each; the subscription's `retry` judges a record by its own
    error.
    """

    def __init__(
        self,
        failed: Sequence[int],
        why: str = "",
        *,
        errors: Mapping[int, BaseException] | None = None,
    ) -> None:
        super().__init__(why or f"{len(failed)} of the batch failed")
        self.failed = tuple(failed)
        self.errors = dict(errors or {})
