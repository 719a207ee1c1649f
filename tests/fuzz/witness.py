"""Somebody else on the same node, whom nothing that the fuzzed client sends may harm.

The witness has a topic whose name no input knows. From time to time it writes a record and reads
everything that was ever acknowledged to it: the values must be there, at their offsets, also after
the node was killed and started again. On a node where the fuzzed client may do nothing, writing
must succeed as well; elsewhere a setting that was changed may keep it from doing so, and the topic
may be deleted by its id.
"""

from __future__ import annotations

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import create_topics, fetch, produce
from headrace.wire.protocol.record_batch import Record, build, headers_in, walk
from tests.fuzz.stand import Failure, Stand

TOPIC = "of-the-witness-1b7e"
# Longer than the windows of all quotas: who is limited is not limited any more.
PAUSE_MS = 100_000
LARGEST_BATCH = 1 << 20
READ_BYTES = 1 << 20


class Witness:
    def __init__(self, stand: Stand) -> None:
        self._kept: dict[int, bytes] = {}  # what was acknowledged, by offset
        self._said = 0
        self._create(stand)

    def _create(self, stand: Stand) -> None:
        topic = create_topics.CreatableTopic(TOPIC, 1, 1)
        request = create_topics.CreateTopicsRequest([topic], 1_000)
        [result] = stand.ask(create_topics, 7, request).topics
        if result.error_code and stand.variant.is_powerless:
            raise Failure(f"the witness gets no topic: error {result.error_code}")

    def testify(self, stand: Stand) -> None:
        if TOPIC not in stand.node.broker.topics.by_name:
            if stand.variant.is_powerless:
                raise Failure("the topic of somebody else is gone")
            self._kept.clear()
            self._create(stand)
            return
        self._write(stand)
        self.require_all(stand)

    def _write(self, stand: Stand) -> None:
        self._said += 1
        value = b"said %d" % self._said
        batch = build([Record(key=b"witness", value=value, timestamp=stand.now.wall_ms)])
        part = produce.PartitionProduceData(0, batch)
        data = [produce.TopicProduceData(TOPIC, bytes(16), [part])]
        answer = stand.ask(produce, 9, produce.ProduceRequest(None, -1, 1_000, data))
        result = answer.responses[0].partition_responses[0]
        if result.error_code == ErrorCode.NONE:
            self._kept[result.base_offset] = value
        elif stand.variant.is_powerless:
            raise Failure(f"somebody else cannot write: error {result.error_code}")

    def require_all(self, stand: Stand) -> None:
        found = self._read(stand)
        for offset, value in self._kept.items():
            if found.get(offset) != value:
                raise Failure(f"{value!r} was acknowledged at {offset}: {found.get(offset)!r}")

    def _read(self, stand: Stand) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        last = max(self._kept, default=-1)
        at = min(self._kept, default=0)
        patience = 3
        while at <= last and patience:
            records = self._fetch(stand, at)
            if not records:
                patience -= 1
                stand.pass_time(PAUSE_MS)
                continue
            for position, header in headers_in(records):
                batch = records[position : position + header.size]
                for record in walk(batch, LARGEST_BATCH):
                    found[record.offset] = record.value or b""
                at = header.last_offset + 1
        return found

    def _fetch(self, stand: Stand, offset: int) -> bytes:
        wanted = fetch.FetchPartition(0)
        wanted.fetch_offset, wanted.partition_max_bytes = offset, READ_BYTES
        request = fetch.FetchRequest()
        request.max_bytes = READ_BYTES
        request.topics = [fetch.FetchTopic(TOPIC, bytes(16), [wanted])]
        answer = stand.ask(fetch, 11, request)
        if not answer.responses:
            return b""
        [part] = answer.responses[0].partitions
        if part.error_code:
            raise Failure(f"what was acknowledged cannot be read: error {part.error_code}")
        return bytes(part.records)
