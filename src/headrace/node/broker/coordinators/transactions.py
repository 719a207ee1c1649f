"""The transaction coordinator of this broker: its topic, its settings, and the order of its writes.

Order is everything here. A partition that a client adds to a transaction is in the file of
`__transaction_state` before a record of it is in the file of that partition; the decision is there
before any marker; every marker is in its file before the transaction is called complete. So a
broker that is killed between two of these writes finds a state from which it can continue: a
decision without all its markers gets them again, an open transaction is aborted when its time is
over. With durability `disk` the same holds for what has reached the disk, and steps wait for it.
The markers are written by `transaction_markers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.broker.coordinators.admission_ahead import (
    CoordinatorsElsewhere,
    Guards,
    Question,
)
from headrace.node.broker.coordinators.coordinators import Coordinator, replicas_of_topic
from headrace.node.broker.coordinators.partition_journal import journal_of
from headrace.node.broker.coordinators.refused_sequences import RefusedSequences
from headrace.node.broker.coordinators.transaction_markers import TransactionMarkers
from headrace.node.broker.replicas.topics import Topic
from headrace.node.coordination.shard import Decision, Later, Shard
from headrace.node.coordination.transaction.machine import (
    Producer,
    TransactionMachine,
    TransactionSettings,
)
from headrace.node.coordination.transaction.transaction import (
    BUMPS_EPOCH,
    NO_ID,
    Partition,
    Transaction,
)
from headrace.node.metadata.image import NO_LEADER
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.chain import chain, or_refused
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.java_hash import partition_for_group

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

STATE_TOPIC = "__transaction_state"
TRANSACTION_KEY = 1  # FindCoordinator's key type of a transactional id
FEATURE = "transaction.version"


class TransactionCoordinator(Coordinator):
    __slots__ = (
        "refused",
        "guards",
        "_broker",
        "_settings",
        "_settings_of",
        "_markers",
        "_elsewhere",
    )

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settings: TransactionSettings | None = None
        self._settings_of: tuple[Any, Any] = (None, None)  # built from these values and features
        self._markers = TransactionMarkers(broker, self._complete)
        self.refused = RefusedSequences()
        self.guards = Guards()
        self._elsewhere = CoordinatorsElsewhere(broker)
        super().__init__(
            STATE_TOPIC,
            self._machine,
            self._topic_rules,
            broker.purgatory,
            broker.confirmed_reads,
            self._written_at_once,
            broker.loads,
            broker.chores,
            lambda: int(broker.values["request.timeout.ms"]),
        )

    def settings(self) -> TransactionSettings:
        values, features = self._broker.values, self._broker.image.features
        if self._settings is None or self._settings_of != (values, features):
            self._settings_of = values, features
            self._settings = TransactionSettings(
                values["transactional.id.expiration.ms"],
                values["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
                values["transaction.remove.expired.transaction.cleanup.interval.ms"],
                features.get(FEATURE, 0),
            )
        return self._settings

    def _machine(self, _: list[Later]) -> TransactionMachine:
        return TransactionMachine(self.settings, self._fresh_id)

    def _topic_rules(self) -> tuple[int, int, Mapping[str, str]]:
        values = self._broker.values
        wanted = values["transaction.state.log.replication.factor"]
        replicas = replicas_of_topic(self._broker.peers, wanted)
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
        """Return only when the append is in the file: other logs must not be ahead of this one; see
        the head of this module."""
        try:
            leader.log.write_at_once()
        except KafkaError as refusal:
            leader.high_watermark = min(leader.high_watermark, leader.log.end_offset)
            raise KafkaError(ErrorCode.NOT_COORDINATOR, refusal.message) from refusal
        self._broker.coordinator_appended(leader)

    # --- requests

    def ask_shard(
        self, shard: Shard, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | WaitingRequest:
        response = super().ask_shard(shard, now, decide, *arguments)
        # A request decides at most one transaction. `tick` finishes transactions that time has
        # decided.
        self._markers.finish_latest(shard)
        return response

    def ask_with_fresh_id(
        self,
        transactional_id: str,
        now: Now,
        decide: Callable[..., Decision],
        *arguments: Any,
        if_unknown: bool = False,
    ) -> Any | WaitingRequest:
        """Returns the answer, or the code of the refusal: it may come when no caller is left to
        catch it.

        After its arguments, `decide` gets an unused producer id if it may need one, else NO_ID; and
        the time.
        """

        def ask(fresh_id: int) -> Any | WaitingRequest:
            try:
                return self.ask(
                    transactional_id, now, decide, transactional_id, *arguments, fresh_id, now
                )
            except KafkaError as refusal:
                return refusal.code

        try:
            machine = self.machine_of(transactional_id, now)
            if not machine.wants_producer_id(transactional_id, if_unknown=if_unknown):
                return ask(NO_ID)
            fresh = self._broker.producer_ids.next(lambda producer_id: producer_id, now)
        except KafkaError as refusal:
            return refusal.code
        return chain(self._purgatory, fresh, ask)

    def _fresh_id(self) -> int | None:
        """Returns a producer id for a decision by time; None if the next block of ids has to come
        first."""
        broker = self._broker
        try:
            found = broker.producer_ids.next(lambda producer_id: producer_id, broker.now)
        except KafkaError:
            return None
        if isinstance(found, WaitingRequest):
            found.complete = lambda _: None
            broker.purgatory.add(found)
            return None
        return int(found)

    def machine_of(self, transactional_id: str, now: Now) -> TransactionMachine:
        """Returns the machine of the id's shard; read it, do not change it."""
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
    ) -> Any | WaitingRequest:
        """Returns NONE or a code such as CONCURRENT_TRANSACTIONS; raises other refusals."""
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

    # --- partitions whose transaction another broker coordinates

    def waits_for(self, transactional_id: str, *, adds: bool) -> int | None:
        """Returns the broker whose answer a partition has to wait for: this one if it is the
        coordinator and its appends do not commit at once. Returns None if the answer is there at
        once."""
        try:
            leader = journal_of(self.shard_of(transactional_id)).leader
        except KafkaError as refusal:
            if refusal.code != ErrorCode.NOT_COORDINATOR:
                return None
            return self._coordinator_elsewhere(transactional_id)
        return self._broker.node_id if adds and not leader.commits_at_once else None

    def _coordinator_elsewhere(self, transactional_id: str) -> int | None:
        topic = self._broker.image.topics.get(STATE_TOPIC)
        if topic is None:
            return None
        index = partition_for_group(transactional_id, len(topic.partitions))
        leader = topic.partitions[index].leader
        return None if leader in (NO_LEADER, self._broker.node_id) else leader

    def ask_to_admit(
        self,
        to: int,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[Partition],
        now: Now,
        *,
        adds: bool,
    ) -> Any | WaitingRequest:
        """Asks the broker that `waits_for` returned: a code for each partition, or one for all."""
        if to != self._broker.node_id:
            if not adds and not self._broker.values["transaction.partition.verification.enable"]:
                return ErrorCode.NONE
            question = Question(transactional_id, producer, partitions, not adds)
            return self._elsewhere.ask(to, question, now)
        try:
            asked = self.add_partitions(transactional_id, producer, partitions, BUMPS_EPOCH, now)
        except KafkaError as refusal:
            return refusal.code
        if isinstance(asked, WaitingRequest):
            asked.mutes = True
        return or_refused(asked, lambda code: code)

    # --- markers

    def tick(self, now: Now) -> None:
        super().tick(now)
        self._markers.tick()
        self._elsewhere.tick()

    def _pass_time(self, now: Now) -> Iterator[int]:
        yield from super()._pass_time(now)
        for shard in list(self.shards.values()):
            yield from self._markers.finish(shard)

    def follow(self, topic: Topic | None, now: Now) -> None:
        super().follow(topic, now)
        self._markers.keep_only(self.shards.values())

    def _opened(self, shard: Shard) -> None:
        """Finish decided transactions: the former leader may have died between a decision and its
        markers."""
        if shard.damage is None:
            self._chores.add(self._markers.finish(shard))

    def _complete(self, shard: Shard, decided: Transaction) -> None:
        now = self._broker.now
        super().ask_shard(shard, now, TransactionMachine.complete, decided.id, decided.epoch, now)
