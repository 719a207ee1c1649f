"""What a cluster knows of its transactions: list, describe, and end one that hangs.

Spoken with our own codecs, since librdkafka has none of it (KIP-664). A transaction whose producer
is gone is ended as a new producer would: by asking for its id, which fences the old one. One that
its coordinator has forgotten (it is known by the partition alone) is ended by a marker written to
that partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.client.connection import Connection, reach
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import (
    describe_producers,
    describe_transactions,
    find_coordinator,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)

Address = tuple[str, int]

TRANSACTION_KEY = 1  # FindCoordinator's type
FIRST_FIND_WITH_MANY = 4
# An ended transaction's coordinator asks its partitions for a moment; then it has the next answer.
LAST_TRIES = 50
# The shortest that a coordinator takes: nobody will use this identity.
TIMEOUT_MS = 1


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
    partitions: list[tuple[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class OpenTransaction:
    """As a partition knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionalIds:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._cluster = reach(connection.admin(), connection)

    def _brokers(self) -> list[Address]:
        return [(str(broker.host), broker.port) for broker in self._cluster.brokers.values()]

    # --- questions

    def all(
        self, states: Iterable[str] = (), *, longer_than_ms: int | None = None
    ) -> list[TransactionSummary]:
        """Of every coordinator; those open for longer than that, if it is said."""
        request = list_transactions.ListTransactionsRequest(
            list(states), [], -1 if longer_than_ms is None else longer_than_ms
        )
        found = []
        for address in self._brokers():
            with Wire(self.connection, address) as wire:
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
            [found] = wire.ask(describe_transactions, request).transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise ClientError(f"Nobody has used the transactional id {transactional_id}.")
        _require(found.error_code, f"{transactional_id} cannot be described")
        started_ms = found.transaction_start_time_ms
        return TransactionDescription(
            transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            started_ms if started_ms >= 0 else None,
            _text(address),
            [(topic.topic, index) for topic in found.topics for index in topic.partitions],
        )

    def open_in(self, topic: str, partition: int) -> list[OpenTransaction]:
        """What holds back readers of committed records there, oldest first."""
        request = describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest(topic, [partition])]
        )
        with Wire(self.connection, self._leader_of(topic, partition)) as wire:
            [answer] = wire.ask(describe_producers, request).topics[0].partitions
        _require(answer.error_code, f"{topic}-{partition} cannot be described")
        found = [
            OpenTransaction(
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.current_txn_start_offset,
                each.last_timestamp,
            )
            for each in answer.active_producers
            if each.current_txn_start_offset >= 0
        ]
        return sorted(found, key=lambda each: each.start_offset)

    # --- the end of one

    def abort(self, transactional_id: str) -> None:
        """As a new producer of this id would: the old one is fenced, its transaction aborted."""
        address = self._coordinator_of(transactional_id)
        request = init_producer_id.InitProducerIdRequest(transactional_id, TIMEOUT_MS)
        with Wire(self.connection, address) as wire:
            for _ in range(LAST_TRIES):
                code = wire.ask(init_producer_id, request).error_code
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
        _require(code, f"{transactional_id} cannot be aborted")

    def abort_in(self, topic: str, partition: int, hanging: OpenTransaction) -> None:
        """A marker in this partition; for a transaction that no coordinator knows any more."""
        self.end_in(topic, partition, hanging, commit=False)

    def end_in(self, topic: str, partition: int, hanging: OpenTransaction, *, commit: bool) -> None:
        """The marker that is missing there, by somebody who knows what was decided."""
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

    # --- who to ask

    def _coordinator_of(self, transactional_id: str) -> Address:
        request = find_coordinator.FindCoordinatorRequest(
            transactional_id, TRANSACTION_KEY, [transactional_id]
        )
        with Wire(self.connection, self._brokers()[0]) as wire:
            many = wire.version_of(find_coordinator) >= FIRST_FIND_WITH_MANY
            answer = wire.ask(find_coordinator, request)
        found = answer.coordinators[0] if many else answer
        _require(found.error_code, f"No broker coordinates {transactional_id} now")
        return found.host, found.port

    def _leader_of(self, topic: str, partition: int) -> Address:
        known = self._cluster.topics.get(topic)
        if known is None or partition not in known.partitions:
            raise ClientError(f"There is no partition {topic}-{partition}.")
        leader = self._cluster.brokers.get(known.partitions[partition].leader)
        if leader is None:
            raise ClientError(f"Nobody leads {topic}-{partition} now; try again.")
        return str(leader.host), leader.port


def _require(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        known = ErrorCode._value2member_map_.get(code)
        words = known.description if isinstance(known, ErrorCode) else f"error {code}"
        raise ClientError(f"{what}: {words}.")


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
