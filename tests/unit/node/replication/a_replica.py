"""Replicas of one partition, with logs in memory, for stories about two or three of them."""

from __future__ import annotations

from typing import Any

from headrace.node.metadata.image import BrokerImage, PartitionImage
from headrace.node.replication.partition_follower import Position
from headrace.node.replication.replica import Replica
from headrace.node.replication.this_broker import ReplicationSettings, ThisBroker
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.messages.fetch import EpochEndOffset, PartitionData
from headrace.wire.protocol.record_batch import Record, build
from tests.fuzz.memory_disk import MemoryDisk
from tests.unit.node.replication.checkers import content

TOPIC_ID = b"orders".ljust(16)
WALL_MS = 1_700_000_000_000
LAG_MS = 10_000


def a_broker(broker_id: int, **fields: Any) -> BrokerImage:
    known: dict[str, Any] = dict(
        id=broker_id,
        epoch=broker_id * 100,
        incarnation_id=bytes(16),
        endpoints=(),
        features={},
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(bytes([broker_id]) * 16,),
    )
    return BrokerImage(**known | fields)


def a_partition(leader: int = 1, epoch: int = 0, **fields: Any) -> PartitionImage:
    known: dict[str, Any] = dict(
        replicas=(1, 2, 3),
        isr=(1, 2, 3),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        directories=tuple(bytes([b]) * 16 for b in (1, 2, 3)),
    )
    return PartitionImage(**known | fields)


class Stage:
    """Brokers 1, 2 and 3 with a replica each; nothing moves by itself."""

    def __init__(self, *, durable: bool = False, **partition: Any) -> None:
        self.now_ms = 1_000
        self.woken: list[int] = []
        self.brokers = {b: a_broker(b) for b in (1, 2, 3)}
        self.replicas = {b: self._replica(b, durable) for b in (1, 2, 3)}
        self.metadata = a_partition(**partition)
        self.follow(self.metadata)

    def _replica(self, broker_id: int, durable: bool) -> Replica[PartitionLog]:
        settings = ReplicationSettings(lag_time_max_ms=LAG_MS)
        broker = ThisBroker(broker_id, broker_id * 100, self.brokers, settings)
        log = PartitionLog.open(
            OpenFiles(MemoryDisk()),
            "/orders-0",
            LogSettings(),
            now_wall_ms=WALL_MS,
            unwritten=Unwritten(),
            wants_flush=[],
        )
        replica = Replica(
            "orders",
            TOPIC_ID,
            0,
            log,
            -1,
            commits_at_once=not durable,
            on_progress=lambda replica: self.woken.append(replica.broker.id),
            broker=broker,
            high_watermark=0,
        )
        replica.require_in_sync(2)
        return replica

    def __getitem__(self, broker_id: int) -> Replica[PartitionLog]:
        return self.replicas[broker_id]

    def follow(self, partition: PartitionImage, *who: int) -> None:
        for broker_id in who or (1, 2, 3):
            self.replicas[broker_id].follow(partition, self.now_ms)
        self.metadata = partition

    def produce(self, broker_id: int, *values: bytes) -> tuple[int, int]:
        """What a producer keeps while it waits: the end of its records and since when is led."""
        batch = build([Record(None, value, timestamp=WALL_MS) for value in values])
        replica = self.replicas[broker_id]
        base, _ = replica.append(memoryview(bytearray(batch)), WALL_MS, acks_all=True)
        replica.advance()
        return base + len(values), replica.led_since

    def fetch(self, follower: int, leader: int = 1, max_bytes: int = 1 << 20) -> PartitionData:
        """One round of a follower: it asks, the leader answers, the follower takes it."""
        role = self.replicas[follower].following
        assert role is not None
        position = role.fetch_position(self.now_ms, WALL_MS)
        assert position is not None
        answer = self.answer(follower, position, leader, max_bytes)
        role.take(position, answer, self.now_ms, WALL_MS)
        return answer

    def answer(
        self, follower: int, position: Position, leader: int = 1, max_bytes: int = 1 << 20
    ) -> PartitionData:
        replica = self.replicas[leader]
        found = replica.replicate(
            follower,
            self.replicas[follower].broker.epoch,
            position,
            max_bytes,
            at_least_one=True,
            now_ms=self.now_ms,
        )
        answer = PartitionData(0, 0, replica.high_watermark, -1, replica.log.start_offset)
        if found.diverging is not None:
            answer.diverging_epoch = EpochEndOffset(*found.diverging)
        if found.records is not None:
            answer.records = found.records.file.read(found.records.length, found.records.position)
        return answer

    def values(self, broker_id: int) -> list[bytes]:
        return [value for _, value in content(self.replicas[broker_id])]
