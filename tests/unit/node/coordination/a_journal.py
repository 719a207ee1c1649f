"""A log in memory, as a shard sees it."""

from headrace.wire.protocol import record_batch
from headrace.wire.protocol.errors import ErrorCode, KafkaError


class MemoryJournal:
    def __init__(self, epoch=3):
        self.epoch = epoch
        self.start_offset = 0
        self.batches = []
        self.refuses = False
        self.skips_damage = False

    @property
    def end_offset(self):
        if not self.batches:
            return self.start_offset
        return record_batch.read_header(self.batches[-1]).last_offset + 1

    def append(self, batch, wall_ms):
        if self.refuses:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        header = record_batch.read_header(batch)
        assert header.base_offset == self.end_offset
        assert record_batch.crc_is_right(batch)
        self.batches.append(batch)
        return header.last_offset + 1

    def read(self, offset):
        for batch in self.batches:
            if record_batch.read_header(batch).last_offset >= offset:
                return batch
        return b""

    def records(self):
        """Key and value of everything appended, in order."""
        return [
            (found.key, found.value)
            for batch in self.batches
            for found in record_batch.walk(batch, 1 << 30)
        ]
