"""Reading records, alone or in a group, one by one or in batches.

Nothing is committed unless you say so: `commit()` commits the place after the last record that you
were given. `auto_commit=True` commits in the background what was given *before* the record in hand,
so a crash repeats records and never skips one. A consumer belongs to one thread at a time; only
`stop` may be called from another. Group protocol and assignors: by librdkafka's settings.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.connection import (
    Connection,
    Setting,
    connected,
    made,
    program_settings,
    wait_for_topic,
)
from headrace.client.errors import (
    NOBODY_ANSWERS,
    ClientError,
    Misuse,
    NoSuchTopic,
    PoisonRecord,
    explain,
    kafka_error,
)
from headrace.client.fetched import Fetched, deserialized, is_of, record_of
from headrace.client.one_thread import OneThread
from headrace.client.places import Offsets, Places
from headrace.client.rebalancing import OnPartitions, Rebalancing, cooperative
from headrace.client.records import K, Record, TopicPartition, V
from headrace.client.serializers import Deserializer

OffsetReset = Literal["earliest", "latest", "none"]
Partitions = Iterable[TopicPartition]

# librdkafka wants a name even where no group is meant; nothing is ever committed under it.
NO_GROUP = "headrace-without-group"

RECORDS_PER_FETCH = 500

# How long one call into librdkafka may last, so that `stop` and Ctrl-C are heard.
SLICE_S = 0.2

_RESET = {"earliest": "earliest", "latest": "latest", "none": "error"}


class Consumer(Generic[K, V]):
    """Reads topics; use it in a `with` statement, or call `close`."""

    def __init__(
        self,
        bootstrap: str | Connection | None = None,
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
        on_commit: Callable[[Offsets, ClientError | None], None] | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        self.connection = connected(bootstrap, settings)
        self.group = group or self.connection.settings.get("group.id")
        self.auto_commit = auto_commit
        self._reset = auto_offset_reset
        self._deserializers = (key_deserializer, value_deserializer)
        self._as_it_is = key_deserializer is None and value_deserializer is None
        self._on_poison, self._on_commit = on_poison, on_commit
        conf = program_settings(self.connection, self._defaults())
        conf["on_commit"] = self._committed_in_background
        self._native = made(lambda: confluent_kafka.Consumer(conf))
        self._rebalancing = Rebalancing(
            on_assigned, on_revoked, on_lost, forget=self._forget, cooperative=cooperative(conf)
        )
        self._fetched = Fetched()
        self._places = Places()
        self._alone = OneThread()
        self.stopped = False
        if topics:
            self.subscribe(topics)

    def _defaults(self) -> dict[str, Setting]:
        if self._reset not in _RESET:
            raise Misuse('auto_offset_reset is "earliest", "latest" or "none".')
        if self.auto_commit:
            self._require_group()
        return {
            "group.id": self.group or NO_GROUP,
            "enable.auto.commit": self.auto_commit,
            "enable.auto.offset.store": False,  # we store what the program has seen
            "auto.offset.reset": _RESET[self._reset],
        }

    # ---- what to read

    def subscribe(self, topics: Sequence[str]) -> None:
        """Share these topics with the group; a name that begins with ^ is a regular expression."""
        if not self.group:
            raise Misuse("Only a group can subscribe: give group=, or assign partitions by hand.")
        hears = self._rebalancing
        self._call(
            lambda: self._native.subscribe(
                list(topics),
                on_assign=hears.assigned,
                on_revoke=hears.revoked,
                on_lost=hears.lost,
            )
        )

    def assign(self, partitions: Partitions | Offsets) -> None:
        """Read these partitions, without the group's say, from the given offsets.

        Without offsets: from the group's committed ones, or where `auto_offset_reset` says.
        """
        given = dict(partitions) if isinstance(partitions, Mapping) else {}
        places = [TopicPartition(*place) for place in partitions]
        self._drop([*self._places.next, *places])
        unsaid = any(place not in given for place in places)
        start = self._start_offset() if unsaid else OFFSET_END
        self._call(
            lambda: self._native.assign(
                [NativePartition(*place, given.get(place, start)) for place in places]
            )
        )

    def _start_offset(self) -> int:
        if self.group:
            return OFFSET_STORED
        if self._reset == "none":
            raise Misuse('Say the offsets, or auto_offset_reset="earliest" or "latest".')
        return OFFSET_BEGINNING if self._reset == "earliest" else OFFSET_END

    def assignment(self) -> list[TopicPartition]:
        found: list[NativePartition] = self._call(self._native.assignment)
        return [TopicPartition(p.topic, p.partition) for p in found]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, for `assign`."""
        with self._alone:
            count = wait_for_topic(self._native, self.connection, topic)
        return [TopicPartition(topic, number) for number in range(count)]

    # ---- reading

    def poll(self, timeout_s: float = 1.0) -> Record[K, V] | None:
        """The next record; None if none came in time, or after `stop`."""
        deadline = time.monotonic() + timeout_s
        while not self.stopped:
            record = self.take()
            if record is not None:
                return record
            left = deadline - time.monotonic()
            if not self.fetch(max(0.0, min(left, SLICE_S))) and left <= 0:
                break
        return None

    def batch(
        self, max_records: int = RECORDS_PER_FETCH, timeout_s: float = 1.0
    ) -> list[Record[K, V]]:
        """Up to so many records: waits for the first, then gives what is there."""
        first = self.poll(timeout_s)
        if first is None:
            return []
        records = [first]
        while len(records) < max_records:
            try:
                record = self.take(store=False)
            except ClientError:  # it is raised by the next call, when these are in your hands
                break
            if record is not None:
                records.append(record)
            elif not self.fetch(0):
                break
        return records

    def __iter__(self) -> Iterator[Record[K, V]]:
        return self

    def __next__(self) -> Record[K, V]:
        while not self.stopped:
            record = self.take() if self._fetched.ready else self.poll(SLICE_S)
            if record is not None:
                return record
        raise StopIteration

    def stop(self) -> None:
        """End the iteration and every later poll; any thread may call it, then `close` follows."""
        self.stopped = True

    def fetch(self, timeout_s: float) -> bool:
        """Wait for records and keep them for `take`; whether some came. Part of `poll`."""
        return bool(self._call(lambda: self._fetch(timeout_s)))

    def _fetch(self, timeout_s: float) -> bool:
        first = self._native.poll(timeout_s)
        if first is None:
            return False
        # Kept before the next call: a rebalance inside it may take this partition away.
        self._fetched.add([first])
        self._fetched.add(self._native.consume(RECORDS_PER_FETCH, timeout=0))
        return True

    @property
    def has_ready(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._fetched.ready)

    def take(self, *, store: bool = True) -> Record[K, V] | None:
        """A record that was fetched already; None if there is none. Part of `poll`."""
        if self.auto_commit and store:
            self._store()
        ready = self._fetched.ready
        while ready:
            message = ready[0]
            if (error := message.error()) is not None:
                ready.popleft()
                self._note(error, message)
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
            self._places.gave(record.topic, record.partition, record.offset)
            return record
        return None

    def skip(self, poison: PoisonRecord) -> None:
        """Go on after a record that cannot be deserialized."""
        raw = poison.record
        ready = self._fetched.ready
        if ready and is_of(ready[0], raw):
            ready.popleft()
            self._places.gave(raw.topic, raw.partition, raw.offset)
        else:
            self.seek(raw.place, raw.offset + 1)

    def _note(self, error: KafkaError, message: Message) -> None:
        """What librdkafka says between records: mostly things it cures by itself."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF or (code in NOBODY_ANSWERS and not error.fatal()):
            return
        said = explain(error, self.connection.bootstrap, topic=message.topic())
        if isinstance(said, NoSuchTopic):
            said.args = (f"{said} Create it, and poll again.",)
        raise said

    # ---- where we are

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that a record was given of, or that was sought."""
        return dict(self._places.next)

    def position(self, place: TopicPartition) -> int | None:
        """The next offset of a partition; None before its first record."""
        return self._places.next.get(place)

    def committed(self, partitions: Partitions | None = None) -> dict[TopicPartition, int | None]:
        """The group's offsets; None where it has none. Without a word: of what is assigned."""
        self._require_group()
        places = self._chosen(partitions)
        found: list[NativePartition] = self._call(
            lambda: self._native.committed(
                [NativePartition(*place) for place in places], self.connection.timeout_s
            )
        )
        self._require_no_error(found)
        return {
            TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found
        }

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie before each assigned partition's end."""
        unknown = [p for p in self.assignment() if p not in self._places.next]
        committed = self.committed(unknown) if unknown and self.group else {}
        lags = {}
        for place in self.assignment():
            low, high = self._ends(place)
            at = self._places.next.get(place, committed.get(place))
            if at is None:
                at = high if self._reset == "latest" else low
            lags[place] = max(0, high - max(at, low))
        return lags

    def _ends(self, place: TopicPartition) -> tuple[int, int]:
        ends: tuple[int, int] = self._call(
            lambda: self._native.get_watermark_offsets(
                NativePartition(*place), self.connection.timeout_s
            ),
            place.topic,
        )
        return ends

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go on at this offset; also inside `on_assigned`."""
        if self._rebalancing.took_seek(place, offset):
            return
        deadline = time.monotonic() + self.connection.timeout_s
        while (error := self._sought(place, offset)) is not None:
            if place not in self.assignment():
                raise Misuse(f"{place} is not assigned to this consumer.")
            # Just assigned: librdkafka's own thread has not begun with it yet.
            if error.code() != KafkaError._STATE or time.monotonic() > deadline:
                raise explain(error, self.connection.bootstrap, topic=place.topic)
            time.sleep(0.005)
        self._fetched.forget({place})
        self._places.sought(place, offset)

    def _sought(self, place: TopicPartition, offset: int) -> KafkaError | None:
        with self._alone:
            try:
                self._native.seek(NativePartition(*place, offset))
            except KafkaException as failure:
                return kafka_error(failure)
        return None

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        for place in self._chosen(partitions):
            self.seek(place, OFFSET_BEGINNING)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        for place in self._chosen(partitions):
            self.seek(place, OFFSET_END)

    def _chosen(self, partitions: Partitions | None) -> list[TopicPartition]:
        return self.assignment() if partitions is None else list(partitions)

    def seek_to_time(self, when: datetime | int, partitions: Partitions | None = None) -> None:
        """Go to the first record not older than a moment (milliseconds since 1970, or a datetime).

        A partition with none so late goes to its end.
        """
        wall_ms = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
        asked = [NativePartition(*place, wall_ms) for place in self._chosen(partitions)]
        found: list[NativePartition] = self._call(
            lambda: self._native.offsets_for_times(asked, self.connection.timeout_s)
        )
        self._require_no_error(found)
        for place in found:
            offset = place.offset if place.offset >= 0 else OFFSET_END
            self.seek(TopicPartition(place.topic, place.partition), offset)

    def rewind(self) -> None:
        """Go back to what is committed, else to where we began: the rest comes again."""
        places = list(self._places.next)
        committed = self.committed(places) if places and self.group else {}
        for place, offset in self._places.before(committed).items():
            self.seek(place, offset)

    def pause(self, partitions: Partitions | None = None) -> None:
        """Give out no records of these partitions until `resume`; the membership stays alive."""
        places = self._chosen(partitions)
        self._call(lambda: self._native.pause([NativePartition(*p) for p in places]))
        self._fetched.hold(places)

    def resume(self, partitions: Partitions | None = None) -> None:
        places = list(self.paused() if partitions is None else partitions)
        self._call(lambda: self._native.resume([NativePartition(*place) for place in places]))
        self._fetched.release(places)

    def paused(self) -> set[TopicPartition]:
        return self._fetched.held

    # ---- committing

    def commit(self, offsets: Offsets | None = None) -> dict[TopicPartition, int]:
        """Commit and wait: the given offsets, or the place after each record that was given out."""
        chosen = self._to_commit(offsets)
        if chosen:
            native = [NativePartition(*place, offset) for place, offset in chosen.items()]
            answered = self._call(lambda: self._native.commit(offsets=native, asynchronous=False))
            self._require_no_error(answered or [])
            self._places.committed(chosen)
        return chosen

    def commit_async(self, offsets: Offsets | None = None) -> None:
        """Commit without waiting; `on_commit` hears of it during a later poll."""
        chosen = self._to_commit(offsets)
        if chosen:
            native = [NativePartition(*place, offset) for place, offset in chosen.items()]
            self._call(lambda: self._native.commit(offsets=native, asynchronous=True))
            self._places.committed(chosen)

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, int]:
        self._require_group()
        return self._places.uncommitted() if offsets is None else dict(offsets)

    def _store(self) -> None:
        """For auto-commit: what was given before now counts as done."""
        done = self._places.uncommitted()
        if done:
            self._places.committed(done)
            native = [NativePartition(*place, offset) for place, offset in done.items()]
            with contextlib.suppress(KafkaException):  # a partition that has just been taken away
                self._native.store_offsets(offsets=native)

    def _committed_in_background(
        self, error: KafkaError | None, places: list[NativePartition]
    ) -> None:
        if self._on_commit is None or (error and error.code() == KafkaError._NO_OFFSET):
            return
        why = explain(error, self.connection.bootstrap) if error is not None else None
        self._on_commit({TopicPartition(p.topic, p.partition): p.offset for p in places}, why)

    def group_metadata(self) -> Any:
        """What a transaction needs to commit for this member.

        librdkafka hangs in it while another thread polls, so that is refused.
        """
        self._require_group()
        with self._alone:
            return self._native.consumer_group_metadata()

    def _forget(self, gone: list[TopicPartition]) -> None:
        self._drop(gone)
        self._fetched.release(gone)

    def _drop(self, places: Iterable[TopicPartition]) -> None:
        dropped = set(places)
        self._fetched.forget(dropped)
        self._places.forget(dropped)

    # ---- the end

    def close(self) -> None:
        """Leave the group at once. Commits nothing, unless auto_commit: then what was given out."""
        if self._alone.closed:
            return
        self.stopped = True
        if self.auto_commit:
            self._store()
        self._native.close()  # on_revoked is called in it and may still commit
        self._alone.closed = True

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._places.give_up()  # the record in hand may not be done
        self.close()

    def _require_group(self) -> None:
        if not self.group:
            raise Misuse("Offsets are kept for a group: give the consumer group=.")

    def _require_no_error(self, places: list[NativePartition]) -> None:
        for place in places:
            if place.error is not None:
                raise explain(place.error, self.connection.bootstrap, topic=place.topic)

    def _call(self, call: Callable[[], Any], topic: str | None = None) -> Any:
        with self._alone:
            try:
                return call()
            except KafkaException as failure:
                raise explain(
                    kafka_error(failure), self.connection.bootstrap, topic=topic
                ) from failure
