"""Committing how far a consumer has come: at once, in the background, by and by.

What is committed is the place after the last record that the program was given. A background commit
counts when the cluster has confirmed it, and not before: until then `commit` commits it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.asking import require_no_error
from headrace.client.errors import ClientError, explain
from headrace.client.places import Offsets, Places
from headrace.client.records import TopicPartition

OnCommit = Callable[[Offsets, ClientError | None], None]


class Committing:
    def __init__(self, places: Places, bootstrap: str, on_commit: OnCommit | None) -> None:
        self._places = places
        self._bootstrap = bootstrap
        self._on_commit = on_commit

    def now(self, native: Consumer, offsets: Offsets | None) -> dict[TopicPartition, int]:
        """Commit and wait."""
        chosen = self._chosen(offsets)
        if chosen:
            answered = native.commit(offsets=_native(chosen), asynchronous=False)
            require_no_error(answered or [], self._bootstrap)
            self._places.committed(chosen)
        return chosen

    def soon(self, native: Consumer, offsets: Offsets | None) -> None:
        """Commit without waiting; `heard` is told."""
        if chosen := self._chosen(offsets):
            native.commit(offsets=_native(chosen), asynchronous=True)

    def store(self, native: Consumer) -> None:
        """For auto-commit: what was given before now counts as done."""
        if done := self._places.uncommitted():
            self._places.committed(done)
            with contextlib.suppress(KafkaException):  # a partition that has just been taken away
                native.store_offsets(offsets=_native(done))

    def heard(self, error: KafkaError | None, places: list[NativePartition]) -> None:
        """librdkafka's report of a commit in the background."""
        if error is not None and error.code() == KafkaError._NO_OFFSET:
            return  # there was nothing to commit
        if error is None:
            self._places.committed(_ours([place for place in places if place.error is None]))
        if self._on_commit is None:
            return
        failed = error or next((place.error for place in places if place.error is not None), None)
        why = explain(failed, self._bootstrap) if failed is not None else None
        self._on_commit(_ours(places), why)

    def _chosen(self, offsets: Offsets | None) -> dict[TopicPartition, int]:
        return self._places.uncommitted() if offsets is None else dict(offsets)


def _native(offsets: Offsets) -> list[NativePartition]:
    return [NativePartition(*place, offset) for place, offset in offsets.items()]


def _ours(places: list[NativePartition]) -> dict[TopicPartition, int]:
    return {TopicPartition(p.topic, p.partition): p.offset for p in places}
