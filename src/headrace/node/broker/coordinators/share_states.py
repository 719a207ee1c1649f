"""The share coordinator of this broker: topic, settings, and pruning of its log (KIP-932).

It keeps the state of share partitions for their leaders, which may be other brokers. This broker
asks it through `share_state_access.py`, other brokers by the five APIs of the state. Records before
the last snapshots are deleted every `share.coordinator.state.topic.prune.interval.ms`: the topic
has no retention, and each acknowledgement adds a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.broker.coordinators.coordinators import Coordinator, replicas_of_topic
from headrace.node.broker.coordinators.partition_journal import journal_of
from headrace.node.coordination.shard import Decision, Later, Shard
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.coordination.share.state_machine import ShareStateMachine
from headrace.node.serving.api import WaitingRequest
from headrace.wire.protocol.errors import KafkaError

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

SHARE_STATE_TOPIC = "__share_group_state"
SHARE_KEY = 2  # FindCoordinator's key type of a share partition
# With fewer records before the first snapshot, quiet partitions get no snapshots.
WORTH_REFRESHING = 1_000


class ShareCoordinator(Coordinator):
    __slots__ = ("_broker", "_next_prune_ms")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next_prune_ms: int | None = None
        super().__init__(
            SHARE_STATE_TOPIC,
            self._machine,
            self._topic_rules,
            broker.purgatory,
            broker.confirmed_reads,
            broker.coordinator_appended,
            broker.loads,
            broker.chores,
            lambda: int(broker.values["share.coordinator.write.timeout.ms"]),
            compression=broker.values["share.coordinator.state.topic.compression.codec"],
        )

    def _machine(self, _: list[Later]) -> ShareStateMachine:
        name = "share.coordinator.snapshot.update.records.per.snapshot"
        return ShareStateMachine(lambda: int(self._broker.values[name]), lambda: self._broker.image)

    def _topic_rules(self) -> tuple[int, int, Mapping[str, str]]:
        values = self._broker.values
        wanted = values["share.coordinator.state.topic.replication.factor"]
        replicas = replicas_of_topic(self._broker.peers, wanted)
        min_in_sync = values["share.coordinator.state.topic.min.isr"]
        return (
            values["share.coordinator.state.topic.num.partitions"],
            replicas,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(min(min_in_sync, replicas)),
                "retention.ms": "-1",
                "segment.bytes": str(values["share.coordinator.state.topic.segment.bytes"]),
            },
        )

    # --- requests

    def change(
        self, key: SharePartitionKey, now: Now, decide: Callable[..., Decision], *arguments: Any
    ) -> Any | WaitingRequest:
        """Returns the result for one share partition when it is committed; raises refusals."""
        shard = self.shard_of(key.text)
        end_offset = journal_of(shard).end_offset
        return self.ask_shard(shard, now, decide, key, *arguments, now, end_offset)

    def read_state(
        self, key: SharePartitionKey, leader_epoch: int, now: Now
    ) -> Any | WaitingRequest:
        end_offset = journal_of(self.shard_of(key.text)).end_offset
        return self.read(key.text, now, ShareStateMachine.read, key, leader_epoch, now, end_offset)

    # --- topics that are deleted

    def forget_topics(self, topic_ids: frozenset[bytes]) -> None:
        for shard in list(self.shards.values()):
            with suppress(KafkaError):  # it is looked for again when the state is loaded
                self.ask_shard(shard, self._broker.now, ShareStateMachine.forget_topics, topic_ids)

    def _opened(self, shard: Shard) -> None:
        if shard.damage is None:
            with suppress(KafkaError):
                self.ask_shard(shard, self._broker.now, ShareStateMachine.forget_unknown_topics)

    # --- the length of the log

    def tick(self, now: Now) -> None:
        super().tick(now)
        if self._next_prune_ms is None or now.monotonic_ms >= self._next_prune_ms:
            if self._next_prune_ms is not None:
                for shard in list(self.shards.values()):
                    with suppress(KafkaError):
                        self.prune(shard, now)
            interval_ms = self._broker.values["share.coordinator.state.topic.prune.interval.ms"]
            self._next_prune_ms = now.monotonic_ms + interval_ms

    def prune(self, shard: Shard, now: Now) -> None:
        """Delete the records that no state needs. Partitions that are not written to get another
        snapshot first, if they keep many."""
        journal, machine = journal_of(shard), shard.machine
        assert isinstance(machine, ShareStateMachine)
        if not journal.is_led or shard.damage is not None or not machine.states:
            return
        end_offset = journal.end_offset
        before = end_offset - len(machine.states) - WORTH_REFRESHING
        if before > journal.start_offset:
            self.ask_shard(shard, now, ShareStateMachine.refresh, before, now, end_offset)
        leader = journal.leader
        target = min(machine.prunable_to, leader.high_watermark)
        if target > journal.start_offset:
            self._broker.partitions.delete_before(leader.log, target)
            self._broker.partition_changed(leader)
