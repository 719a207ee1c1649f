"""Reading records, alone or in a group, one by one or in batches.

Nothing is committed unless you ask for it: `commit()` commits the offset after the last record that
you were given. `auto_commit=True` commits in the background the records given *before* the record
in hand, so a crash repeats records and never skips one. A consumer belongs to one thread at a time;
only `stop` may be called from another. An exception of a callback is raised by the call that ran
it. librdkafka's settings choose the group protocol and the assignor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic

import confluent_kafka
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as NativePartition

from headrace.client import exits, forks
from headrace.client.connection import ClientSettings, Setting, connected, made, program_settings
from headrace.client.consumer.assignment import OnPartitions, Rebalancing, cooperative
from headrace.client.consumer.commits import COMMIT_S, Committing, OnCommit, UpTo
from headrace.client.consumer.fetched import (
    RECORDS_PER_FETCH,
    Fetched,
    deserialized,
    is_of,
    place_of,
    record_of,
    said_between,
)
from headrace.client.consumer.offset_questions import Asking
from headrace.client.consumer.offset_reset import OffsetReset, consumer_defaults, start_offset
from headrace.client.consumer.places import Offsets, Positions
from headrace.client.errors import ClientError, Misuse, NoOffset, PoisonRecord, explain, explained
from headrace.client.one_thread import OneThread
from headrace.client.records import K, Record, TopicPartition, V, as_names, as_places
from headrace.client.refusals import Refusals
from headrace.client.serializers import Deserializer

Partitions = Iterable[TopicPartition]

# How long one call into librdkafka may last, so that `stop` and Ctrl-C are heard.
SLICE_S = 0.2


class Consumer(Generic[K, V]):
    """Reads topics; use it in a `with` statement, or call `close`."""

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        topics: Sequence[str] = (),
        group: str | None = None,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        auto_offset_reset: OffsetReset = "earliest",
        auto_commit: bool = False,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        on_poison: Callable[[PoisonRecord], None] | None = None,
        on_commit: OnCommit | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.connection = connected(bootstrap, settings)
        self.group = group or self.connection.settings.get("group.id")
        self.auto_commit = auto_commit
        self._reset = auto_offset_reset
        self._deserializers = (key_deserializer, value_deserializer)
        self._as_it_is = key_deserializer is None and value_deserializer is None
        self._on_poison = on_poison
        self._fetched = Fetched()
        self._positions = Positions()
        self._halted: set[TopicPartition] = set()  # librdkafka has no offset and has stopped
        self._alone = OneThread()
        self._committing = Committing(self._positions, self.connection.bootstrap, on_commit)
        if auto_commit:
            self._require_group()
        defaults = consumer_defaults(self.group, auto_offset_reset, auto_commit=auto_commit)
        conf = program_settings(self.connection, defaults)
        conf["on_commit"] = self._committing.heard
        self._refusals = Refusals(conf)
        self._native = self._committing.native = made(lambda: confluent_kafka.Consumer(conf))
        self._asking = Asking(self._native, self.connection)
        self._rebalancing = Rebalancing(
            on_assigned, on_revoked, on_lost, forget=self._forget, cooperative=cooperative(conf)
        )
        self.must_rewind = False  # before the next record is given
        self.stopped = False
        self._reads = False  # something was subscribed or assigned
        forks.watch(self)
        exits.watch(self)
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:
                self._native.close()
                raise

    # ---- what to read

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics; a name that begins with ^ is a regular expression."""
        if not self.group:
            raise Misuse("Only a group can subscribe: give group=, or assign partitions by hand.")
        names, hears = as_names(topics), self._rebalancing
        told = {"on_assign": hears.assigned, "on_revoke": hears.revoked, "on_lost": hears.lost}
        self._call(lambda: self._native.subscribe(names, **told))
        self._reads = True

    def assign(self, partitions: Partitions | Offsets) -> None:
        """Read these partitions from the given offsets, without the group's assignment.

        Without offsets: from the group's committed offsets, or by `auto_offset_reset`.
        """
        given = dict(partitions) if isinstance(partitions, Mapping) else {}
        chosen = as_places(partitions)
        unsaid = any(place not in given for place in chosen)
        start = start_offset(self.group, self._reset) if unsaid else OFFSET_END
        self._drop([*self._positions.next, *self._fetched.places(), *chosen])
        self.resume(self.paused() - set(chosen))
        self._call(
            lambda: self._native.assign(
                [NativePartition(*place, given.get(place, start)) for place in chosen]
            )
        )
        self._asking.assigned(chosen)
        self._reads = True

    def assignment(self) -> list[TopicPartition]:
        """The partitions of this consumer; in `on_assigned` also those that are being assigned."""
        found: list[NativePartition] = self._call(self._native.assignment)
        places = [TopicPartition(p.topic, p.partition) for p in found]
        more = (*self._rebalancing.coming, *sorted(self._halted))
        return places + [place for place in dict.fromkeys(more) if place not in places]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, for `assign`."""
        count: int = self._call(lambda: self._asking.partitions_of(topic))
        return [TopicPartition(topic, number) for number in range(count)]

    # ---- reading

    def poll(self, timeout_s: float = 1.0) -> Record[K, V] | None:
        """Return the next record; None if none arrived in time, or after `stop`."""
        if not self.stopped and self.has_ready and (record := self.take()) is not None:
            return record
        records = self.batch(1, timeout_s)
        return records[0] if records else None

    def batch(
        self, max_records: int = RECORDS_PER_FETCH, timeout_s: float = 1.0
    ) -> list[Record[K, V]]:
        """Return up to `max_records` records: waits for the first, then takes what has arrived."""
        self._alone.require_open()
        deadline = time.monotonic() + timeout_s
        try:
            while not self.stopped:
                if self.is_due:
                    self.catch_up()
                self.fill(max_records)
                if records := self.give(max_records):
                    return records
                left = deadline - time.monotonic()
                if not self.fetch(max(0.0, min(left, SLICE_S))) and left <= 0:
                    self.verify()
                    break
        except Misuse:
            if not self.stopped:  # else another thread is closing it just now
                raise
        return []

    def verify(self) -> None:
        """After an empty poll: raise if there is nothing that could be read. Part of `poll`."""
        if not self._reads:
            raise Misuse("Nothing to read: give topics= and group=, or call subscribe or assign.")
        self._call(self._asking.verify)

    def fill(self, wanted: int) -> None:
        """Fetch what has come already, until `give` has `wanted` records. Part of `batch`.

        All are fetched before the first is given out: a fetch may take partitions away, and records
        that the program does not have yet would then count as read.
        """
        while len(self._fetched.ready) < wanted and self.fetch(0):
            pass

    def give_messages(self, most: int) -> list[Message]:
        """As `give`, as librdkafka's messages (`fetched.py`), without deserializers."""
        return self._fetched.given(most, self._said, self._positions.gave)

    def give(self, most: int) -> list[Record[K, V]]:
        """At most `most` records that were fetched already. Part of `batch`."""
        records: list[Record[K, V]] = []
        try:
            while len(records) < most:
                record = self.take(first=not records)
                if record is None:
                    break
                records.append(record)
        except Exception:
            if not records:
                raise
            # The next call raises it again, when the program has these.
        return records

    def __iter__(self) -> Iterator[Record[K, V]]:
        return self

    def __next__(self) -> Record[K, V]:
        while not self.stopped:
            record = self.take() if self.has_ready else self.poll(SLICE_S)
            if record is not None:
                return record
        raise StopIteration

    def stop(self) -> None:
        """End the iteration and every later poll; any thread may call it, then `close` follows."""
        self.stopped = True

    def fetch(self, timeout_s: float) -> bool:
        """Wait for records and keep them for `take`; returns whether some came. Part of `poll`."""
        came = bool(self._call(lambda: self._fetched.fetch(self._native, timeout_s)))
        self._call(self._committing.go_on)
        if came:
            self._refusals.forget()
        elif (refused := self._refusals.taken()) is not None:
            raise explain(refused, self.connection.bootstrap)
        return came

    @property
    def is_due(self) -> bool:
        """Whether `catch_up` must run before the next record."""
        return self.must_rewind or self._fetched.is_silent

    def catch_up(self) -> None:
        """Go back if a transaction was aborted, and poll librdkafka so that the member stays in the
        group."""
        if self.must_rewind:
            self.rewind()
        self._call(lambda: self._fetched.show_life(self._native))

    @property
    def has_ready(self) -> bool:
        """Whether `take` has something to give right now."""
        return self._fetched.can_give and not self.must_rewind

    def take(self, *, first: bool = True) -> Record[K, V] | None:
        """A record that was fetched already; None if there is none. Part of `poll`.

        If it is not the first of a call, an error between the records is left for the next one.
        """
        if self.auto_commit and first:
            self._committing.store()
        ready = self._fetched.ready
        while ready:
            message = ready[0]
            if message.error() is not None:
                if not first:
                    return None
                ready.popleft()
                if (said := self._said(message)) is not None:
                    raise said
                continue
            try:
                record: Record[Any, Any] = (
                    record_of(message)
                    if self._as_it_is
                    else deserialized(message, *self._deserializers)
                )
            except PoisonRecord as poison:
                if self._on_poison is None:
                    raise  # and again, until it is skipped
                self._on_poison(poison)
                self.skip(poison)
                ready = self._fetched.ready
                continue
            ready.popleft()
            self._positions.gave(record.topic, record.partition, record.offset)
            return record
        return None

    def skip(self, poison: PoisonRecord) -> None:
        """Continue after a record that cannot be deserialized."""
        raw = poison.record
        ready = self._fetched.ready
        if ready and is_of(ready[0], raw):
            ready.popleft()
            self._positions.gave(raw.topic, raw.partition, raw.offset)
        else:
            self.seek(raw.place, raw.offset + 1)

    def _said(self, message: Message) -> ClientError | None:
        said = said_between(message, self.connection.bootstrap, self.group)
        if isinstance(said, NoOffset):
            place = place_of(message)
            if place in self._halted:
                return None  # it was raised before, and the partition was not sought since
            self._halted.add(place)
        return said

    # ---- where we are

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition of which a record was returned, or that was sought."""
        return dict(self._positions.next)

    def position(self, place: TopicPartition) -> int | None:
        """The next offset of a partition; None before its first record."""
        return self._positions.next.get(place)

    def committed(self, partitions: Partitions | None = None) -> dict[TopicPartition, int | None]:
        """The group's committed offsets or None; by default of the assigned partitions."""
        self._require_group()
        places = self._chosen(partitions)
        found: dict[TopicPartition, int | None] = self._call(lambda: self._asking.committed(places))
        return found

    def lag(self) -> dict[TopicPartition, int]:
        """The number of records in each assigned partition that were not returned yet."""
        places = self.assignment()
        unknown = [place for place in places if place not in self._positions.next]
        committed = self.committed(unknown) if unknown and self.group else {}
        at = {place: self._positions.next.get(place, committed.get(place)) for place in places}
        found: dict[TopicPartition, int] = self._call(lambda: self._asking.unread(at))
        if self._reset == "latest":
            found.update({place: 0 for place in places if at[place] is None})
        return found

    def _ends(self, place: TopicPartition) -> tuple[int, int]:
        ends: tuple[int, int] = self._call(partial(self._asking.ends, place), place.topic)
        return ends

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue at this offset; also allowed inside `on_assigned`."""
        if not self._rebalancing.took_seek(place, offset):
            if self.must_rewind:  # first, because it would undo the seek
                self.rewind()
            self._go_to(place, offset)

    def _go_to(self, place: TopicPartition, offset: int) -> None:
        if place in self._halted:
            known = {p: n for p, n in self._positions.next.items() if not self._fetched.has(p)}
            begin = partial(self._rebalancing.begin_at, halted=self._halted, known=known)
            self._call(lambda: begin(self._native, place, offset))
            self._halted.discard(place)
            self._fetched.forget({place}, errors=True)
        deadline = time.monotonic() + self.connection.timeout_s
        while error := self._call(partial(self._asking.sought, place, offset)):
            self._require_assigned([place])
            # Just assigned: librdkafka's own thread has not begun with it yet.
            if error.code() != KafkaError._STATE or time.monotonic() > deadline:
                raise explain(error, self.connection.bootstrap, topic=place.topic)
            time.sleep(0.005)
        self._fetched.forget({place})
        self._positions.sought(place, offset)

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Continue with the first record of each partition."""
        for place in self._chosen(partitions):
            self.seek(place, self._ends(place)[0])

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Continue after the last record that is there now."""
        for place in self._chosen(partitions):
            self.seek(place, self._ends(place)[1])

    def _chosen(self, partitions: Partitions | None) -> list[TopicPartition]:
        return self.assignment() if partitions is None else list(partitions)

    def _require_assigned(self, places: Iterable[TopicPartition]) -> None:
        for place in set(places).difference(self.assignment()):
            raise Misuse(f"{place} is not assigned to this consumer.")

    def seek_to_time(self, when: datetime | int, partitions: Partitions | None = None) -> None:
        """Go to the first record not older than a moment (milliseconds since 1970, or a datetime).

        A partition without such a record continues at its end.
        """
        wall_ms = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
        places = self._chosen(partitions)
        for place, offset in self._call(lambda: self._asking.at_time(places, wall_ms)).items():
            self.seek(place, offset)

    def rewind(self) -> None:
        """Go back to the committed offsets, or to the start positions if there are none.

        If the cluster does not answer now, the next poll asks again before it returns a record.
        """
        self.must_rewind = True
        places = list(self._positions.next)
        committed = self.committed(places) if places and self.group else {}
        for place, offset in self._positions.before(committed).items():
            self._go_to(place, offset)
        self.must_rewind = False

    def pause(self, partitions: Partitions | None = None) -> None:
        """Return no records of these partitions until `resume`; the member stays in the group.

        Also inside `on_assigned`. The pause ends when the partition goes to another member.
        """
        places = self._chosen(partitions)
        self._require_assigned(places)
        now = [place for place in places if not self._rebalancing.took_pause(place)]
        if now:
            self._call(lambda: self._native.pause([NativePartition(*place) for place in now]))
        self._fetched.hold(places)

    def resume(self, partitions: Partitions | None = None) -> None:
        """Return records of these partitions again."""
        places = list(self.paused() if partitions is None else partitions)
        now = [place for place in places if not self._rebalancing.took_resume(place)]
        if now:
            self._call(lambda: self._native.resume([NativePartition(*place) for place in now]))
        self._fetched.release(places)

    def paused(self) -> set[TopicPartition]:
        """The partitions that `pause` stopped."""
        return self._fetched.held

    # ---- committing

    def commit(
        self, up_to: UpTo = None, *, timeout_s: float = COMMIT_S
    ) -> dict[TopicPartition, int]:
        """Commit and wait: all returned records, those up to a record, or the given offsets."""
        self._require_group()
        inside = self._alone.is_inside
        done: dict[TopicPartition, int] = self._call(
            lambda: self._committing.now(up_to, timeout_s, here=inside)
        )
        return done

    def commit_async(self, up_to: UpTo = None) -> None:
        """Commit without waiting; `on_commit` is called during a later poll or commit.

        One commit is sent at a time; the next waits for its answer, and only its newest offsets are
        sent.
        """
        self._require_group()
        self._call(lambda: self._committing.soon(up_to))

    def group_metadata(self) -> Any:
        """The group metadata for a transaction; librdkafka hangs in this call while another thread
        polls."""
        self._require_group()
        with self._alone:
            return self._native.consumer_group_metadata()

    def _forget(self, gone: list[TopicPartition]) -> None:
        self._committing.forget(gone)
        self._drop(gone)
        # librdkafka would keep the pause until it gets the partition again, perhaps much later.
        self.resume(place for place in gone if place in self.paused())

    def _drop(self, places: Iterable[TopicPartition]) -> None:
        dropped = set(places)
        self._fetched.forget(dropped)
        self._positions.forget(dropped)
        self._halted -= dropped

    # ---- the end

    def close(self) -> None:
        """Leave the group at once. Commits nothing; with auto_commit, the returned records."""
        if self._alone.refusal is not None:
            return
        self._alone.require_outside()
        self.stopped = True  # a poll on another thread ends now
        with self._alone.for_the_last_time():
            patience_s = self.connection.timeout_s
            if self._committing.finish(patience_s, auto_commit=self.auto_commit):
                self._native.close()  # on_revoked is called in it and may still commit
            else:
                self._rebalancing.leave(self._native)

    left_open = close  # part of `exits`

    def forked(self) -> object:
        """Part of `forks`."""
        self.stopped = True
        self._alone.abandon(forks.MADE_BEFORE_THE_FORK)
        return self._native

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._positions.give_up()  # the record in hand may not be done
        self.close()

    def _require_group(self) -> None:
        if not self.group:
            raise Misuse("Offsets are kept for a group: give the consumer group=.")

    def _call(self, call: Callable[[], Any], topic: str | None = None) -> Any:
        with self._alone:
            try:
                return call()
            except KafkaException as failure:
                raise explained(failure, self.connection.bootstrap, topic=topic) from failure
