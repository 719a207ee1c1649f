"""The transaction coordinator of this broker: its topic, its settings, and the markers it writes.

Order is everything here. What a client adds to a transaction is in the file of
`__transaction_state` before a record of it is in the file of a partition; the decision is there
before any marker; every marker is in its file before the transaction is called complete. So a
broker that is killed between two of these writes finds a state from which it can go on: a decision
without all its markers gets them again, an open transaction is aborted when its time is over.
With durability `disk` the same holds for what has reached the disk, and steps wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.broker.coordinators import NO_DEADLINE_MS, Coordinator, journal_of
from headrace.broker.topics import Topic
from headrace.coordination.shard import Decision, Later, Shard
from headrace.coordination.transaction.machine import Producer, TransactionMachine
from headrace.coordination.transaction.states import State
from headrace.coordination.transaction.transaction import NO_ID, Partition, Transaction
from headrace.environment import Now
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.replication.partition_leader import PartitionLeader
from headrace.serving.api import Parked
from headrace.serving.chain import chain

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

STATE_TOPIC = "__transaction_state"
TRANSACTION_KEY = 1  # FindCoordinator's type of a transactional id
FEATURE = "transaction.version"
# The partition has heard of a later producer or coordinator: this marker has nothing to end there.
OVERTAKEN = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


@dataclass(slots=True)
class Settings:
    """What holds now; see `TransactionSettings`."""

    max_timeout_ms: int
    expiration_ms: int
    abort_interval_ms: int
    expiration_interval_ms: int
    server_version: int


class TransactionCoordinator(Coordinator):
    __slots__ = ("_broker", "_settings", "_settings_of", "_in_flight")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settings: Settings | None = None
        self._settings_of: tuple[Any, Any] = (None, None)  # the values and features it was made of
        # Transactions whose markers are on their way: id, producer id, epoch.
        self._in_flight: set[tuple[str, int, int]] = set()
        super().__init__(
            STATE_TOPIC, self._machine, self._topic_rules, broker.purgatory, self._written_at_once
        )

    def settings(self) -> Settings:
        values, features = self._broker.values, self._broker.image.features
        if self._settings is None or self._settings_of != (values, features):
            self._settings_of = values, features
            self._settings = Settings(
                values["transaction.max.timeout.ms"],
                values["transactional.id.expiration.ms"],
                values["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
                values["transaction.remove.expired.transaction.cleanup.interval.ms"],
                features.get(FEATURE, 0),
            )
        return self._settings

    def _machine(self, settled: list[Later]) -> TransactionMachine:
        return TransactionMachine(settled, self.settings)

    def _topic_rules(self) -> tuple[int, int, Mapping[str, str]]:
        values = self._broker.values
        brokers = max(len(self._broker.image.brokers), 1)
        replicas = min(values["transaction.state.log.replication.factor"], brokers)
        return (
            values["transaction.state.log.num.partitions"],
            replicas,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(values["transaction.state.log.min.isr"], replicas)),
                "segment.bytes": str(values["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            },
        )

    def _written_at_once(self, leader: PartitionLeader) -> None:
        """Others' logs may not be ahead of this one; see the head of this module."""
        try:
            leader.log.write_pending()
        except KafkaError as refusal:
            leader.high_watermark = min(leader.high_watermark, leader.log.end_offset)
            raise KafkaError(ErrorCode.NOT_COORDINATOR, refusal.message) from refusal
        self._broker.coordinator_appended(leader)

    # --- requests

    def ask_shard(
        self, shard: Shard, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | Parked:
        response = super().ask_shard(shard, now, decide, *arguments)
        self._finish_prepared(shard)
        return response

    def ask_with_fresh_id(
        self,
        transactional_id: str,
        now: Now,
        ask: Callable[[int], Any | Parked],
        *,
        if_unknown: bool = False,
    ) -> Any | Parked:
        """`ask(producer id)`: one that nobody has, if the request may need it; else NO_ID."""
        machine = self.machine_of(transactional_id, now)
        if not machine.wants_producer_id(transactional_id, if_unknown=if_unknown):
            return ask(NO_ID)
        fresh = self._broker.producer_ids.next(lambda producer_id: producer_id, now)
        return chain(self._purgatory, fresh, ask)

    def machine_of(self, transactional_id: str, now: Now) -> TransactionMachine:
        """To look at, not to change."""
        shard = self.shard_of(transactional_id)
        if shard.applied_to != shard.journal.end_offset:
            shard.catch_up(now)
        assert isinstance(shard.machine, TransactionMachine)
        return shard.machine

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[Partition],
        client_version: int,
        now: Now,
    ) -> Any | Parked:
        """NONE or CONCURRENT_TRANSACTIONS and the like; other refusals are raised."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self.ask(
            transactional_id,
            now,
            TransactionMachine.add_partitions,
            transactional_id,
            producer,
            partitions,
            client_version,
            now,
        )

    # --- markers

    def tick(self, now: Now) -> None:
        super().tick(now)
        for shard in self.shards:
            self._finish_prepared(shard)

    def follow(self, topic: Topic | None, now: Now) -> None:
        known = len(self.shards)
        super().follow(topic, now)
        if not self.shards:
            self._in_flight.clear()
        if len(self.shards) != known:
            for shard in self.shards:
                self._finish_prepared(shard)

    def _finish_prepared(self, shard: Shard) -> None:
        machine = shard.machine
        assert isinstance(machine, TransactionMachine)
        if not machine.prepared:
            return
        leader = journal_of(shard).leader
        for transactional_id in list(machine.prepared):
            found = machine.transactions[transactional_id]
            key = (found.id, found.producer_id, found.epoch)
            if key not in self._in_flight:
                self._in_flight.add(key)
                self._when_committed(
                    [(leader, leader.log.end_offset)], self._write_markers, shard, found
                )

    def _write_markers(self, shard: Shard, found: Transaction) -> None:
        written: list[tuple[PartitionLeader, int]] = []
        try:
            for topic, index in sorted(found.partitions):
                leader = self._leader(topic, index)
                if leader is not None:
                    written.append((leader, self._write_marker(shard, found, leader)))
        except KafkaError as refusal:
            log.warning("markers of %s will be written again: %s", found.id, refusal)
            self._in_flight.discard((found.id, found.producer_id, found.epoch))
            return
        self._when_committed(written, self._complete, shard, found)

    def _leader(self, topic: str, index: int) -> PartitionLeader | None:
        """None: the topic was deleted, and what the transaction wrote with it."""
        found = self._broker.topics.by_name.get(topic)
        return found.leaders[index] if found is not None and index < len(found.leaders) else None

    def _write_marker(self, shard: Shard, found: Transaction, leader: PartitionLeader) -> int:
        try:
            end_offset = leader.append_marker(
                self._broker.now.wall_ms,
                commit=found.state is State.PREPARE_COMMIT,
                producer_id=found.producer_id,
                producer_epoch=found.epoch,
                coordinator_epoch=shard.journal.epoch,
                bumps_epoch=found.bumps_epoch,
            )
        except KafkaError as refusal:
            if refusal.code not in OVERTAKEN:
                raise
            log.warning("%s-%d needs no marker of %s: %s", leader.topic, leader.index, found.id,
                        refusal)  # fmt: skip
            return 0
        leader.log.write_pending()
        self._broker.coordinator_appended(leader)
        return end_offset

    def _complete(self, shard: Shard, found: Transaction) -> None:
        self._in_flight.discard((found.id, found.producer_id, found.epoch))
        now = self._broker.now
        try:
            super().ask_shard(shard, now, TransactionMachine.complete, found.id, found.epoch, now)
        except KafkaError as refusal:
            log.warning("the end of %s will be recorded again: %s", found.id, refusal)

    def _when_committed(
        self,
        written: list[tuple[PartitionLeader, int]],
        go_on: Callable[[Shard, Transaction], None],
        shard: Shard,
        found: Transaction,
    ) -> None:
        def attempt(expired: bool) -> bool | None:
            if all(leader.high_watermark >= offset for leader, offset in written):
                return True
            return False if expired else None

        def complete(committed: Any) -> None:
            if committed is True:
                go_on(shard, found)

        if attempt(False):
            go_on(shard, found)
            return
        parked = Parked(
            attempt, deadline_ms=NO_DEADLINE_MS, hangs_on=[leader for leader, _ in written]
        )
        parked.complete = complete
        self._purgatory.park(parked)
