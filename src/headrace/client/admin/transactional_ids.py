"""The transactions of a cluster: list, describe, and end a hanging one.

Sent with our own codecs, since librdkafka lacks these requests (KIP-664). If the producer of a
transaction is gone, we end it as a new producer would: by asking for its id, which fences the old
one. If its coordinator has forgotten it (only the partition knows it, see `once/hanging.py`), we
write a marker to that partition.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.wire import Wire
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    describe_producers,
    describe_transactions,
    find_coordinator,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)

Address = tuple[str, int]
Place = tuple[str, int]  # topic, partition
Found = TypeVar("Found")

TRANSACTION_KEY = 1  # FindCoordinator's type
FIRST_FIND_WITH_MANY = 4
FIRST_LIST_BY_DURATION = 1
# The shortest time-out that a coordinator accepts: this producer id will never be used.
TIMEOUT_MS = 1
# How long to wait before a busy coordinator is asked again; markers are written meanwhile.
PAUSE_S = 0.05
# Limits the size of one request about many partitions.
PARTITIONS_AT_ONCE = 500

NOT_ALLOWED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class NoSuchTransactionalId(ClientError):
    """No producer of this id is known to its coordinator."""


@dataclass(slots=True)
class TransactionSummary:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: str  # host:port


@dataclass(slots=True)
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None  # wall clock
    coordinator: str
    partitions: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class OpenTransaction:
    """An open transaction as a partition knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionalIds:
    """Transactional ids and their open transactions: `admin.transactions`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        self._cluster = reach(connection.admin(), connection)

    def _brokers(self) -> list[Address]:
        return [(str(broker.host), broker.port) for broker in self._cluster.brokers.values()]

    # --- questions

    def all(
        self,
        states: Iterable[str] = (),
        *,
        longer_than_ms: int | None = None,
        producer_ids: Iterable[int] = (),
    ) -> list[TransactionSummary]:
        """The transactions of every coordinator; with `longer_than_ms` only those that are open for
        longer."""
        request = list_transactions.ListTransactionsRequest(
            list(states), list(producer_ids), -1 if longer_than_ms is None else longer_than_ms
        )
        found = []
        for address in self._brokers():
            with Wire(self.connection, address) as wire:
                if longer_than_ms is not None:
                    _require_durations(wire)
                answer = wire.ask(list_transactions, request)
            _require(answer.error_code, "The broker does not list its transactions")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise ClientError(f"There is no transaction state {unknown}.")
            found += [
                TransactionSummary(
                    each.transactional_id, each.producer_id, each.transaction_state, _text(address)
                )
                for each in answer.transaction_states
            ]
        return sorted(found, key=lambda each: each.transactional_id)

    def describe(self, transactional_id: str) -> TransactionDescription:
        address = self._coordinator_of(transactional_id)
        request = describe_transactions.DescribeTransactionsRequest([transactional_id])
        with Wire(self.connection, address) as wire:

            def ask() -> tuple[int, describe_transactions.TransactionState]:
                [found] = wire.ask(describe_transactions, request).transaction_states
                return found.error_code, found

            code, found = self._patiently(ask)
        if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise NoSuchTransactionalId(
                f"No producer has used the transactional id {transactional_id}."
            )
        _require(code, f"{transactional_id} cannot be described")
        started_ms = found.transaction_start_time_ms
        return TransactionDescription(
            transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            started_ms if started_ms >= 0 else None,
            _text(address),
            sorted((topic.topic, index) for topic in found.topics for index in topic.partitions),
        )

    def open_in(self, topic: str, partition: int) -> list[OpenTransaction]:
        """The transactions that hold back readers of committed records there, oldest first."""
        return [found for _, found in self.open_at([(topic, partition)])]

    def open_at(self, places: Iterable[Place]) -> list[tuple[Place, OpenTransaction]]:
        """The open transactions of many partitions, by place and then oldest first."""
        by_leader: dict[Address, list[Place]] = defaultdict(list)
        for place in places:
            by_leader[self._leader_of(*place)].append(place)
        found: list[tuple[Place, OpenTransaction]] = []
        for address, asked in by_leader.items():
            with Wire(self.connection, address) as wire:
                for first in range(0, len(asked), PARTITIONS_AT_ONCE):
                    found += _open_at(wire, asked[first : first + PARTITIONS_AT_ONCE])
        return sorted(found, key=lambda each: (each[0], each[1].start_offset))

    def led_partitions(self, topic: str | None = None) -> list[Place]:
        """All partitions of the cluster, or of a topic, that have a leader now."""
        if topic is not None and topic not in self._cluster.topics:
            raise NoSuchTopic(f"There is no topic {topic}.")
        return [
            (name, index)
            for name, known in self._cluster.topics.items()
            if topic in (None, name)
            for index, partition in known.partitions.items()
            if partition.leader in self._cluster.brokers
        ]

    # --- the end of one

    def abort(self, transactional_id: str) -> None:
        """Abort as a new producer of this id would: the old one is fenced, its transaction
        aborted."""
        address = self._coordinator_of(transactional_id)
        request = init_producer_id.InitProducerIdRequest(transactional_id, TIMEOUT_MS)
        with Wire(self.connection, address) as wire:

            def ask() -> tuple[int, None]:
                return wire.ask(init_producer_id, request).error_code, None

            code, _ = self._patiently(ask)
        _require(code, f"{transactional_id} cannot be aborted")

    def abort_in(self, topic: str, partition: int, hanging: OpenTransaction) -> None:
        """Write an abort marker in this partition, for a transaction that no coordinator knows any
        more."""
        self.end_in(topic, partition, hanging, commit=False)

    def end_in(self, topic: str, partition: int, hanging: OpenTransaction, *, commit: bool) -> None:
        """Write the missing marker there; the caller knows whether the transaction was
        committed."""
        marker = write_txn_markers.WritableTxnMarker(
            hanging.producer_id,
            hanging.producer_epoch,
            commit,
            [write_txn_markers.WritableTxnMarkerTopic(topic, [partition])],
            max(hanging.coordinator_epoch, 0),
        )
        request = write_txn_markers.WriteTxnMarkersRequest([marker])
        with Wire(self.connection, self._leader_of(topic, partition)) as wire:
            answer = wire.ask(write_txn_markers, request)
        code = answer.markers[0].topics[0].partitions[0].error_code
        _require(code, f"The transaction in {topic}-{partition} cannot be ended")

    def end_open_in(self, topic: str, partition: int, of: OpenTransaction, *, commit: bool) -> int:
        """Do the same for the open transactions of the producer of `of` in another partition;
        returns how many."""
        identity = of.producer_id, of.producer_epoch
        found = [
            each
            for each in self.open_in(topic, partition)
            if (each.producer_id, each.producer_epoch) == identity
        ]
        for each in found:
            self.end_in(topic, partition, each, commit=commit)
        return len(found)

    # --- finding coordinators

    def _coordinator_of(self, transactional_id: str) -> Address:
        request = find_coordinator.FindCoordinatorRequest(
            transactional_id, TRANSACTION_KEY, [transactional_id]
        )
        with Wire(self.connection, self._brokers()[0]) as wire:
            many = wire.version_of(find_coordinator) >= FIRST_FIND_WITH_MANY

            def ask() -> tuple[int, Address]:
                answer = wire.ask(find_coordinator, request)
                found = answer.coordinators[0] if many else answer
                return found.error_code, (found.host, found.port)

            code, address = self._patiently(ask)
        _require(code, f"No broker coordinates {transactional_id} now")
        return address

    def _patiently(self, ask: Callable[[], tuple[int, Found]]) -> tuple[int, Found]:
        """Ask again while a coordinator is loading, busy or not made yet, within the time limit."""
        deadline = time.monotonic() + self.connection.timeout_s
        while True:
            code, found = ask()
            known = ErrorCode._value2member_map_.get(code)
            may_pass = isinstance(known, ErrorCode) and known.retriable
            if not may_pass or time.monotonic() > deadline:
                return code, found
            time.sleep(PAUSE_S)

    def _leader_of(self, topic: str, partition: int) -> Address:
        known = self._cluster.topics.get(topic)
        if known is None or partition not in known.partitions:
            raise ClientError(f"There is no partition {topic}-{partition}.")
        leader = self._cluster.brokers.get(known.partitions[partition].leader)
        if leader is None:
            raise ClientError(f"{topic}-{partition} has no leader now; try again.")
        return str(leader.host), leader.port


def _open_at(wire: Wire, places: Sequence[Place]) -> Iterator[tuple[Place, OpenTransaction]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        numbers[topic].append(partition)
    request = describe_producers.DescribeProducersRequest(
        [describe_producers.TopicRequest(topic, asked) for topic, asked in numbers.items()]
    )
    for answered in wire.ask(describe_producers, request).topics:
        for answer in answered.partitions:
            place = (answered.name, answer.partition_index)
            _require(answer.error_code, f"{place[0]}-{place[1]} cannot be described")
            for each in answer.active_producers:
                if each.current_txn_start_offset >= 0:
                    yield (
                        place,
                        OpenTransaction(
                            each.producer_id,
                            each.producer_epoch,
                            each.coordinator_epoch,
                            each.current_txn_start_offset,
                            each.last_timestamp,
                        ),
                    )


def _require_durations(wire: Wire) -> None:
    if wire.version_of(list_transactions) < FIRST_LIST_BY_DURATION:
        raise ClientError("This cluster does not list transactions by their age (Kafka 3.8 does).")


def _require(code: int, what: str) -> None:
    if code == ErrorCode.NONE:
        return
    known = ErrorCode._value2member_map_.get(code)
    if not isinstance(known, ErrorCode):
        raise ClientError(f"{what}: error {code}.")
    advice = " `headrace acls add` gives rights." if known in NOT_ALLOWED else ""
    refusal = ClientError(f"{what}: {known.description}{advice}")
    refusal.code, refusal.retriable = known.name, known.retriable
    raise refusal


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
