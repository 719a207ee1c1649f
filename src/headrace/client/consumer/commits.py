"""Offset commits of a consumer: at once, in the background, or automatically.

The committed offset is the one after the last record that the program got. A commit counts only
when the cluster has confirmed it: until then `commit` commits it again.

librdkafka sends a commit that was refused with a temporary error again after a while, after later
ones, and the last one that arrives counts. So one commit is in the background at a time; commits
requested meanwhile wait, and only the newest offset of each partition is sent. A commit with a
waiting caller does not wait for the one in the background: its offsets are sent once more when that
one has ended. The time that librdkafka waits for a coordinator is unknown (session.timeout.ms, 45
s), and it does not react to Ctrl-C meanwhile: so a thread waits for it (`patience.py`), and we wait
for the thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.consumer.places import Offsets, Positions
from headrace.client.errors import ClientError, Misuse, Unreachable, explain, kafka_error
from headrace.client.patience import Patience
from headrace.client.records import Record, TopicPartition

OnCommit = Callable[[Offsets, ClientError | None], None]
# What to commit: offsets, everything up to and including a record, or everything that was returned.
UpTo = Offsets | Record[Any, Any] | None
Errors = Mapping[TopicPartition, KafkaError]

# A coordinator that was killed has a successor within this time, with Kafka's own settings.
COMMIT_S = 30.0
SLICE_S = 0.05


class Committing:
    native: Consumer  # known when it is made, with `heard` among its settings

    def __init__(self, positions: Positions, bootstrap: str, on_commit: OnCommit | None) -> None:
        self._positions = positions
        self._bootstrap = bootstrap
        self._on_commit = on_commit
        self._patience = Patience()
        self._background: Offsets | None = None  # sent, and not answered yet
        self._waiting: dict[TopicPartition, int] = {}  # to send after that answer
        self._overtook: dict[TopicPartition, int] = {}  # committed meanwhile by a waiting caller
        self._stored: dict[TopicPartition, int] = {}  # for auto-commit
        self._is_closing = False

    # ---- with a waiting caller

    def now(self, up_to: UpTo, timeout_s: float, *, here: bool) -> dict[TopicPartition, int]:
        """Commit and wait. `here`: inside a callback of librdkafka, when it serves no other
        thread."""
        chosen = self._chosen(up_to)
        waited, self._waiting = self._waiting, {}
        if offsets := waited | chosen:
            try:
                errors = self._said_against(offsets, None if here else timeout_s)
            except ClientError as failure:
                self._tell(waited, failure)
                raise
            if self._background is not None:
                self._overtook |= offsets
            self._confirmed(offsets, errors)
            self._tell(waited, self._explained(waited, errors))
            if (refused := self._explained(chosen, errors)) is not None:
                raise refused
        return chosen

    def forget(self, gone: Iterable[TopicPartition]) -> None:
        """These partitions go to other members now: send their waiting offsets now or never."""
        gone = set(gone)
        for known in (self._overtook, self._stored):
            for place in gone & known.keys():
                del known[place]
        if late := {place: self._waiting.pop(place) for place in gone & self._waiting.keys()}:
            errors = self._said_against(late, None)
            self._confirmed(late, errors)
            self._tell(late, self._explained(late, errors))

    def finish(self, within_s: float, *, auto_commit: bool) -> bool:
        """At the end: returns whether all is committed and answered."""
        deadline = time.monotonic() + within_s
        if auto_commit:
            self.store()
            self._waiting |= self._stored
        self.go_on()
        while self._background is not None and time.monotonic() < deadline:
            self.native.poll(SLICE_S)  # `heard` is called in it, and sends what waits
        self._is_closing = True
        return self._background is None and not self._patience.is_tried

    def _said_against(self, offsets: Offsets, timeout_s: float | None) -> Errors:
        """Commit these and return the refusal, if any; without a timeout librdkafka's own
        counts."""
        asked = _native(offsets)

        def commit() -> list[NativePartition]:
            return self.native.commit(offsets=asked, asynchronous=False) or []

        try:
            answered = commit() if timeout_s is None else self._patience.run(commit, timeout_s)
        except KafkaException as failure:
            return dict.fromkeys(offsets, kafka_error(failure))
        except TimeoutError as silence:
            said = Unreachable(
                f"The commit was not confirmed within {timeout_s:g} seconds: check whether "
                f"{self._bootstrap} answers, and commit again. Records that are not committed when "
                "this consumer ends are read again."
            )
            said.code, said.retriable = "_TIMED_OUT", True
            raise said from silence
        return _errors(answered)

    # ---- in the background

    def soon(self, up_to: UpTo) -> None:
        """Commit without waiting; `heard` gets the result."""
        self._waiting |= self._chosen(up_to)
        self.go_on()

    def go_on(self) -> None:
        """Send the waiting offsets, unless a commit is under way."""
        under_way = self._background is not None or self._patience.is_tried
        if (self._waiting or self._overtook) and not under_way and not self._is_closing:
            offsets = self._overtook | self._waiting
            self.native.commit(offsets=_native(offsets), asynchronous=True)
            self._background, self._waiting, self._overtook = offsets, {}, {}

    def heard(self, error: KafkaError | None, places: list[NativePartition]) -> None:
        """Takes librdkafka's report of a commit in the background, or of an auto-commit."""
        if error is not None and error.code() == KafkaError._NO_OFFSET:
            return  # there was nothing to commit
        offsets = _ours(places)
        errors = _errors(places) if error is None else dict.fromkeys(offsets, error)
        if offsets == self._background:
            self._background = None
        self._confirmed(offsets, errors)
        try:
            self._tell(offsets, self._explained(offsets, errors))
        finally:
            self.go_on()

    def store(self) -> None:
        """For auto-commit: store what was returned before now as done."""
        if done := self._positions.uncommitted():
            self._positions.committed(done)
            self._stored |= done
            with contextlib.suppress(KafkaException):  # a partition that has just been taken away
                self.native.store_offsets(offsets=_native(done))

    # ---- results

    def _chosen(self, up_to: UpTo) -> dict[TopicPartition, int]:
        if up_to is None:
            return self._positions.uncommitted()
        if isinstance(up_to, Record):
            return {up_to.place: up_to.offset + 1}
        if not isinstance(up_to, Mapping):
            raise Misuse("Commit a record, or offsets by partition: {record.place: 42}.")
        return dict(up_to)

    def _confirmed(self, offsets: Offsets, errors: Errors) -> None:
        self._positions.committed({p: at for p, at in offsets.items() if p not in errors})

    def _explained(self, offsets: Offsets, errors: Errors) -> ClientError | None:
        first = next((errors[place] for place in offsets if place in errors), None)
        return None if first is None else explain(first, self._bootstrap)

    def _tell(self, offsets: Offsets, failure: ClientError | None) -> None:
        if offsets and self._on_commit is not None:
            self._on_commit(offsets, failure)


def _native(offsets: Offsets) -> list[NativePartition]:
    return [NativePartition(*place, offset) for place, offset in offsets.items()]


def _ours(places: list[NativePartition]) -> dict[TopicPartition, int]:
    return {TopicPartition(p.topic, p.partition): p.offset for p in places}


def _errors(places: list[NativePartition]) -> Errors:
    return {TopicPartition(p.topic, p.partition): p.error for p in places if p.error is not None}
