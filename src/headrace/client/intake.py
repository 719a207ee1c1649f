"""Reading partitions for a service: assigned by a group or by hand, records in, no policy.

    intake = Intake(program_settings(at, {"group.id": "g", "enable.partition.eof": True}))
    intake.assign({TopicPartition("orders", 0): BEGINNING})
    arrived = intake.read(wait_s=0.1, most=500)

Programs of users take `Consumer`. A service takes this to decide itself what `Consumer` decides:
which offsets are committed and when, what happens in a rebalance, whether the end of a partition
was reached. Records come as librdkafka has them, in stretches of one partition: nothing is built or
called for a record that the caller does not need. Belongs to one thread, which also runs the
callbacks, inside `read` and `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NewType, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as NativePartition

from headrace.client.connection import ClientSettings, made, wait_for_topic
from headrace.client.faults import NOT_OURS, REBALANCING, Fault, fault_of, faults
from headrace.client.records import TopicPartition

BEGINNING: int = OFFSET_BEGINNING

Place = tuple[str, int]  # topic, partition; a TopicPartition is one

# A member's generation, by which the coordinator checks a commit in a transaction (KIP-447).
GroupMember = NewType("GroupMember", object)


class RawRecord(Protocol):
    """A record as librdkafka has it: fields are methods, and are computed when they are called."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def __len__(self) -> int: ...


class GroupOffset(NamedTuple):
    """An offset to commit: that of the next record to read."""

    place: TopicPartition
    offset: int
    metadata: str = ""


class Arrived:
    """What one `read` brought, in the order in which it came within each kind."""

    __slots__ = ("ends", "faults", "stretches")

    def __init__(self) -> None:
        self.stretches: list[tuple[TopicPartition, list[RawRecord]]] = []
        # Partitions whose end was reached, and the offset there. Records may follow later.
        self.ends: dict[TopicPartition, int] = {}
        # librdkafka's events between records; the place is None if the event concerns the whole
        # client.
        self.faults: list[tuple[TopicPartition | None, Fault]] = []

    def __bool__(self) -> bool:
        return bool(self.stretches or self.ends or self.faults)

    def add(self, messages: Iterable[Message]) -> None:
        topic: str | None = None
        partition: int | None = -1
        append: Callable[[RawRecord], None]
        for message in messages:
            if message.error() is not None:
                self._note(message)
                continue
            if message.partition() != partition or message.topic() != topic:
                topic, partition = message.topic(), message.partition()
                stretch: list[RawRecord] = []
                append = stretch.append
                self.stretches.append((TopicPartition(topic or "", partition or 0), stretch))
            append(message)

    def _note(self, message: Message) -> None:
        error, topic, partition = message.error(), message.topic(), message.partition()
        assert error is not None
        at = None if topic is None or partition is None else TopicPartition(topic, partition)
        if error.code() == KafkaError._PARTITION_EOF and at is not None:
            offset = message.offset()
            self.ends[at] = -1 if offset is None else offset
        else:
            self.faults.append((at, Fault(error)))


Rebalanced = Callable[["Intake", list[TopicPartition]], None]


class Intake:
    """One reader of a cluster. `settings` are all settings of the client (`program_settings`).

    `commits_ended` is called for each commit that was not waited for, with the partitions whose
    offset was not committed.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        commits_ended: Callable[[dict[TopicPartition, Fault]], None] | None = None,
    ) -> None:
        given = dict(settings)
        self._commits_ended = commits_ended
        if commits_ended is not None:
            given["on_commit"] = self._commit_ended
        self._native = made(lambda: Consumer(given))
        self._poll, self._consume = self._native.poll, self._native.consume

    # ---- which partitions

    def follow(
        self, topics: Iterable[str], *, given: Rebalanced, taken: Rebalanced, lost: Rebalanced
    ) -> None:
        """Join the group. `given` must `add` its partitions, or they are not read; `taken` and
        `lost` must `drop` theirs, or librdkafka does it after them."""
        self._native.subscribe(
            list(topics),
            on_assign=lambda _, places: given(self, _places(places)),
            on_revoke=lambda _, places: taken(self, _places(places)),
            on_lost=lambda _, places: lost(self, _places(places)),
        )

    def unfollow(self) -> None:
        self._native.unsubscribe()

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        with faults():
            self._native.assign(_natives(starts))

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too. One that was paused when it was dropped is still paused."""
        with faults():
            self._native.incremental_assign(_natives(starts))

    def drop(self, places: Iterable[Place]) -> None:
        with faults():
            self._native.incremental_unassign([NativePartition(*place) for place in places])

    def pause(self, places: Iterable[Place]) -> None:
        """Pause partitions. Raises Fault for one that is being revoked at this moment."""
        with faults():
            self._native.pause([NativePartition(*place) for place in places])

    def resume(self, places: Iterable[Place]) -> None:
        with faults():
            self._native.resume([NativePartition(*place) for place in places])

    # ---- records

    def read(self, wait_s: float, most: int) -> Arrived:
        """Return the records that have arrived; waits for the first one only. librdkafka's
        `consume` alone would wait for `most` records or the whole time."""
        arrived = Arrived()
        first = self._poll(wait_s)
        if first is not None:
            rest = self._consume(most - 1, 0) if most > 1 else []
            arrived.add([first, *rest])
        return arrived

    # ---- offsets

    def commit(self, offsets: Iterable[GroupOffset]) -> dict[TopicPartition, Fault]:
        """Commit and wait; returns the partitions whose offset was refused. Raises Fault if all
        were."""
        with faults():
            answered: Any = self._native.commit(offsets=natives_of(offsets), asynchronous=False)
        return {
            TopicPartition(each.topic, each.partition): fault_of(each.error)
            for each in answered
            if each.error is not None
        }

    def commit_unawaited(self, offsets: Iterable[GroupOffset]) -> None:
        """Commit without waiting; `commits_ended` gets the answer, inside a later `read`."""
        with faults():
            self._native.commit(offsets=natives_of(offsets), asynchronous=True)

    def holds(self, offsets: Iterable[GroupOffset]) -> bool | None:
        """Whether these partitions are still ours: asks the group, by a commit. None during a
        rebalance, when it is undecided. Other errors do not count as a loss."""
        try:
            refusals = {fault.code for fault in self.commit(offsets).values()}
        except Fault as fault:
            refusals = {fault.code}
        if refusals & (NOT_OURS - REBALANCING):
            return False
        return None if refusals & REBALANCING else True

    def committed(
        self, places: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, tuple[int, str | None]]:
        """The group's offset in each partition, below 0 if there is none, and its metadata."""
        wanted = [NativePartition(*place) for place in places]
        with faults():
            found: Any = self._native.committed(wanted, timeout_s)
        return {
            TopicPartition(each.topic, each.partition): (each.offset, each.metadata)
            for each in found
        }

    def bounds(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """The first offset and the end; for a reader of committed records, the end of those."""
        with faults():
            return self._native.get_watermark_offsets(NativePartition(*place), timeout_s)

    def known_end(self, place: Place) -> int:
        """The end at the last fetch; 0 if there was none. Sends no request."""
        bounds = self._native.get_watermark_offsets(NativePartition(*place), cached=True)
        return bounds[1] if bounds is not None else 0

    # ---- the cluster and the group

    def partitions_of(self, topic: str, timeout_s: float) -> list[int]:
        """The partitions of the topic. Raises Fault if there is no such topic."""
        with faults():
            found = self._native.list_topics(topic, timeout_s).topics[topic]
        if found.error is not None:
            raise Fault(found.error)
        return list(found.partitions)

    def wait_for_topic(self, at: ClientSettings, topic: str) -> int:
        """The number of partitions, once the topic has leaders. Raises ClientError."""
        return wait_for_topic(self._native, at, topic)

    def group_member(self) -> GroupMember:
        return GroupMember(self._native.consumer_group_metadata())

    def close(self) -> None:
        """Leave the group; first calls `taken` for the partitions that are left."""
        self._native.close()

    def _commit_ended(self, error: KafkaError | None, places: list[NativePartition]) -> None:
        assert self._commits_ended is not None
        refused = {}
        for each in places:
            why = each.error or error
            if why is not None and why.code() not in (KafkaError.NO_ERROR, KafkaError._NO_OFFSET):
                refused[TopicPartition(each.topic, each.partition)] = Fault(why)
        self._commits_ended(refused)


def natives_of(offsets: Iterable[GroupOffset]) -> list[NativePartition]:
    return [NativePartition(*place, offset, metadata) for place, offset, metadata in offsets]


def _natives(starts: Mapping[TopicPartition, int]) -> list[NativePartition]:
    return [NativePartition(*place, offset) for place, offset in starts.items()]


def _places(natives: list[NativePartition]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in natives]
