"""Reads partitions as they are stored: batches with their producers and markers, committed or not.

Used to find out the outcome of a transaction; with our own codecs, since no client library returns
producer ids and markers. Reads are bounded by bytes. Not for consuming.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError
from headrace.client.wire import Wire, require_no_error
from headrace.environment import Buffer
from headrace.wire.protocol.control_records import read_end_txn_marker
from headrace.wire.protocol.messages import fetch, list_offsets, metadata
from headrace.wire.protocol.record_batch import BatchHeader, Record, headers_in, walk

Address = tuple[str, int]

# One answer; a batch that is larger is sent whole.
FETCH_BYTES = 4 << 20
LARGEST_BATCH_BYTES = 128 << 20  # uncompressed
CLIENT = -1  # ListOffsets' replica id
LATEST = -1
WAIT_MS = 100


class TooMuch(ClientError):
    """The read needs more bytes than its budget."""


class RawLog:
    """Some topics, with their metadata of that moment; `budget_bytes` is for all reads together."""

    def __init__(self, connection: ClientSettings, topics: set[str], budget_bytes: int) -> None:
        self._connection = connection
        self._left_bytes = budget_bytes
        self._ids: dict[str, bytes] = {}
        self._leaders: dict[tuple[str, int], Address] = {}
        wanted = [metadata.MetadataRequestTopic(name=name) for name in sorted(topics)]
        with self._any_broker() as wire:
            found = wire.ask(metadata, metadata.MetadataRequest(wanted, False))
        brokers = {each.node_id: (each.host, each.port) for each in found.brokers}
        for topic in found.topics:
            self._ids[topic.name] = topic.topic_id
            for each in topic.partitions:
                # Without a leader there is no answer, and guessing one would be wrong.
                if each.leader_id not in brokers:
                    raise ClientError(f"{topic.name}-{each.partition_index} has no leader now.")
                self._leaders[topic.name, each.partition_index] = brokers[each.leader_id]

    def _any_broker(self) -> Wire:
        *others, last = addresses(self._connection.bootstrap)
        for address in others:
            try:
                return Wire(self._connection, address)
            except ClientError:
                continue
        return Wire(self._connection, last)

    def partitions(self) -> list[tuple[str, int]]:
        """The existing partitions; a missing topic has none."""
        return sorted(self._leaders)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record that is not older; the end if there is none."""
        for asked in (timestamp_ms, LATEST):
            place = list_offsets.ListOffsetsTopic(
                topic, [list_offsets.ListOffsetsPartition(partition, -1, asked)]
            )
            request = list_offsets.ListOffsetsRequest(CLIENT, 0, [place])
            with Wire(self._connection, self._leaders[topic, partition]) as wire:
                [answer] = wire.ask(list_offsets, request).topics[0].partitions
            require_no_error(answer.error_code)
            if answer.offset >= 0:
                break
        return int(answer.offset)

    def batches(
        self, topic: str, partition: int, start: int
    ) -> Iterator[tuple[BatchHeader, Buffer]]:
        """The batches from this offset to the present end. Raises TooMuch when the budget is
        spent."""
        end = None
        with Wire(self._connection, self._leaders[topic, partition]) as wire:
            while end is None or start < end:
                answer = self._fetch(wire, topic, partition, start)
                end = answer.high_watermark if end is None else end
                before = start
                records = answer.records or b""
                self._left_bytes -= len(records)
                for pos, header in headers_in(records):
                    if header.last_offset >= start:
                        yield header, memoryview(records)[pos : pos + header.size]
                        start = header.last_offset + 1
                if start < end and start == before:
                    raise ClientError(f"{topic}-{partition} cannot be read at offset {start}.")
                if start < end and self._left_bytes <= 0:
                    raise TooMuch(f"{topic}-{partition} has more to read than is looked at.")

    def ended(
        self, topic: str, partition: int, start: int, *, producer_id: int, producer_epoch: int
    ) -> Iterator[tuple[BatchHeader, Record, bool]]:
        """The records of that producer whose transaction has ended there, with the headers of their
        batches, and whether it was committed."""
        written: list[tuple[BatchHeader, Record]] = []
        for header, batch in self.batches(topic, partition, start):
            if header.producer_id != producer_id:
                continue
            if not header.is_control:
                if header.producer_epoch == producer_epoch:
                    written += ((header, record) for record in walk(batch, LARGEST_BATCH_BYTES))
                continue
            [marker] = walk(batch, LARGEST_BATCH_BYTES)
            committed, _ = read_end_txn_marker(marker)
            yield from ((of, record, committed) for of, record in written)
            written = []

    def _fetch(self, wire: Wire, topic: str, partition: int, start: int) -> fetch.PartitionData:
        place = fetch.FetchPartition(partition, fetch_offset=start, partition_max_bytes=FETCH_BYTES)
        asked = fetch.FetchTopic(topic, self._ids[topic], [place])
        request = fetch.FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, topics=[asked]
        )
        answer = wire.ask(fetch, request)
        require_no_error(answer.error_code)
        found: fetch.PartitionData = answer.responses[0].partitions[0]
        require_no_error(found.error_code)
        return found
