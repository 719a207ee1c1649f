"""Consumers of a simulated cluster without a group: each reads one partition from its beginning.

It checks what a client can see: offsets go forward, no place that it has read is out of range, the
high watermark does not go back, and of a reader of committed records that nothing aborted comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.cluster.record_checker import RecordChecker
from headrace.node.simulator.cluster.scripts import REST_MS, Ask, Leader, Place, Script, Scripts
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import fetch, list_offsets
from headrace.wire.protocol.record_batch import crc_is_right, headers_in, walk

LARGEST_RECORD = 1 << 20
READ_COMMITTED = 1
LATEST = -1


class Consumers:
    def __init__(self, scripts: Scripts, checker: RecordChecker) -> None:
        self.scripts = scripts
        self.checker = checker
        self.next_offset: dict[Place, int] = {}

    def reader(self, place: Place) -> Script:
        return self._read(place, 0, self.checker.read)

    def committed_reader(self, place: Place, found: Callable[[Place, int, bytes], None]) -> Script:
        return self._read(place, READ_COMMITTED, found)

    def _read(
        self, place: Place, isolation: int, found: Callable[[Place, int, bytes], None]
    ) -> Script:
        scripts = self.scripts
        self.next_offset[place] = 0
        while True:
            leader = scripts.leader(place)
            if leader is None:
                yield REST_MS
                continue
            if scripts.chance.random() < 0.1:
                yield from self._ask_for_the_end(place, leader)
            position = self.next_offset[place]
            request = fetch_request(leader, place[1], position, isolation)
            response = yield Ask(leader.address, fetch, request)
            code, records, aborted = what_came(response)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.next_offset[place] = self.checker.deleted_before(place)
                if position >= self.next_offset[place]:
                    raise Violation(f"{place}: offset {position} is out of range, and was read")
            for offset, value in values_in(records, aborted):
                if offset >= position:
                    found(place, offset, value)
            if records:
                self.next_offset[place] = max(position, end_of(records))
                yield 20
            else:
                yield REST_MS

    def _ask_for_the_end(self, place: Place, leader: Leader) -> Any:
        known = self.checker.latest_known(place)
        part = list_offsets.ListOffsetsPartition(place[1], leader.epoch, LATEST)
        topic = list_offsets.ListOffsetsTopic(place[0], [part])
        request = list_offsets.ListOffsetsRequest(-1, 0, [topic])
        answer = yield Ask(leader.address, list_offsets, request)
        if answer is not None:
            told = answer.topics[0].partitions[0]
            if told.error_code == ErrorCode.NONE:
                self.checker.told_end(place, told.offset, known)


def fetch_request(leader: Leader, index: int, offset: int, isolation: int = 0) -> Any:
    """The request names the leader epoch, so that a deposed leader that does not know it is
    detected."""
    wanted = fetch.FetchPartition(index)
    wanted.current_leader_epoch = leader.epoch
    wanted.fetch_offset = offset
    wanted.partition_max_bytes = LARGEST_RECORD
    return fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=LARGEST_RECORD,
        isolation_level=isolation,
        topics=[fetch.FetchTopic(topic_id=leader.topic_id, partitions=[wanted])],
    )


def what_came(response: Any) -> tuple[int | None, bytes, list[tuple[int, int]]]:
    """Code, whole batches with right checksums, and what of them was aborted (offset, producer)."""
    if response is None or not response.responses:
        return None, b"", []
    answer = response.responses[0].partitions[0]
    if answer.error_code != ErrorCode.NONE:
        return answer.error_code, b"", []
    records = _sound(bytes(answer.records or b""))
    aborted = [(a.first_offset, a.producer_id) for a in answer.aborted_transactions or ()]
    return ErrorCode.NONE, records, sorted(aborted)


def _sound(records: bytes) -> bytes:
    """Returns the batches before the first damaged one, as a client with check.crcs reads them."""
    for at, header in headers_in(records):
        if not crc_is_right(records[at : at + header.size]):
            return records[:at]
    return records


def values_in(records: bytes, aborted: list[tuple[int, int]] | None = None) -> Any:
    """Returns offsets and values of the records, without control records and aborted ones."""
    waiting = list(aborted or ())
    aborting: set[int] = set()
    found: list[tuple[int, bytes]] = []
    for at, header in headers_in(records):
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            batch = records[at : at + header.size]
            found += [(r.offset, r.value or b"") for r in walk(batch, LARGEST_RECORD)]
    return found


def end_of(records: bytes) -> int:
    return max((header.last_offset + 1 for _, header in headers_in(records)), default=0)
