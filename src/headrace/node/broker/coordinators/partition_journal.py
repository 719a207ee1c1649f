"""A partition of an internal topic, as the shard on it sees it (`coordination.shard.Journal`)."""

from __future__ import annotations

from collections.abc import Callable

from headrace.node.coordination.shard import Shard
from headrace.node.replication.replica import PartitionLeader
from headrace.wire.protocol.errors import ErrorCode, KafkaError

READ_BYTES = 4 << 20
# Kafka's refusals of an append, as a client of a coordinator is to see them: all of them make it
# retry, with the coordinator of that time.
REFUSED_APPEND = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}


class PartitionJournal:
    """A partition as its shard sees it."""

    __slots__ = ("leader", "led_since", "_appended")

    def __init__(
        self, leader: PartitionLeader, appended: Callable[[PartitionLeader], None]
    ) -> None:
        self.leader = leader
        self.led_since = leader.led_since
        self._appended = appended

    @property
    def is_led(self) -> bool:
        """Returns whether this broker has led without a break since the state was loaded: otherwise
        another leader may have written meanwhile."""
        return self.leader.led_since == self.led_since

    @property
    def epoch(self) -> int:
        return self.leader.epoch

    @property
    def start_offset(self) -> int:
        return int(self.leader.log.start_offset)

    @property
    def end_offset(self) -> int:
        return int(self.leader.log.end_offset)

    @property
    def skips_damage(self) -> bool:
        return bool(self.leader.log.settings.skip_damaged)

    def append(self, batch: bytes, wall_ms: int) -> int:
        leader = self.leader
        log = leader.log
        if not self.is_led:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if leader.in_sync < leader.min_in_sync:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        most = log.settings.max_message_bytes
        if len(batch) > most:
            # Apache Kafka answers this for a group that has outgrown one record.
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(batch)} bytes, but {leader.topic} has max.message.bytes={most}",
            )
        try:
            end_offset: int = leader.writer.append_as_is(memoryview(batch), wall_ms=wall_ms)
        except KafkaError as refusal:
            code = REFUSED_APPEND.get(refusal.code, refusal.code)
            raise KafkaError(code, refusal.message) from refusal
        leader.bytes_in += len(batch)
        if leader.commits_at_once:
            leader.high_watermark = end_offset
        self._appended(leader)
        return end_offset

    def read(self, offset: int) -> bytes:
        found = self.leader.log.read(
            offset, READ_BYTES, up_to=self.leader.log.end_offset, at_least_one=True
        )
        return b"" if found is None else found.file.read(found.length, found.position)


def journal_of(shard: Shard) -> PartitionJournal:
    assert isinstance(shard.journal, PartitionJournal)
    return shard.journal
