"""Producers of a simulated cluster, without transactions: plain ones and idempotent ones.

A plain producer sends each value once with acks=all and does not retry: a value that is not
acknowledged may be in the log or not. An idempotent one tries each value until it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.cluster.record_checker import RecordChecker
from headrace.node.simulator.cluster.scripts import REST_MS, TRY_AGAIN, Ask, Place, Script, Scripts
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import init_producer_id, produce
from headrace.wire.protocol.record_batch import Record, build

PACES_MS = (100, 400, 1_500)  # the longest rest between two batches, of one run
MOST_VALUES = 3  # of a batch


class Producers:
    def __init__(self, scripts: Scripts, checker: RecordChecker) -> None:
        self.scripts = scripts
        self.checker = checker
        self.pace_ms = scripts.chance.choice(PACES_MS)
        self.unanswered: dict[Place, int] = {}  # idempotent producers that still try

    def _rest(self) -> int:
        return self.scripts.chance.randint(1, self.pace_ms)

    def _new_values(self, place: Place) -> list[bytes]:
        scripts = self.scripts
        count = scripts.chance.randint(1, MOST_VALUES)
        values = [b"%06d" % scripts.new_number() for _ in range(count)]
        self.checker.send(place, values)
        return values

    def plain(self, place: Place) -> Script:
        scripts = self.scripts
        while not scripts.stopped:
            found = scripts.leader(place)
            if found is None:
                yield REST_MS
                continue
            values = self._new_values(place)
            wall_ms = scripts.cluster.world.now.wall_ms
            batch = build([Record(None, value, timestamp=wall_ms) for value in values])
            answer = yield Ask(
                found.address, produce, produce_request(found.topic_id, place[1], batch)
            )
            code, offset = outcome_of(answer)
            if code == ErrorCode.NONE:
                self.checker.acknowledge(place, offset, values)
                yield self._rest()
            else:
                scripts.refused(code)
                yield REST_MS

    def idempotent(self, place: Place) -> Script:
        scripts = self.scripts
        producer = yield from new_producer(scripts)
        if producer is None:
            return
        sequence = 0
        while not scripts.stopped:
            values = self._new_values(place)
            self.unanswered[place] = self.unanswered.get(place, 0) + 1
            while True:  # also when no new ones are begun any more
                found = scripts.leader(place)
                if found is None:
                    yield REST_MS
                    continue
                batch = build(
                    [Record(None, v, timestamp=scripts.cluster.world.now.wall_ms) for v in values],
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    base_sequence=sequence,
                )
                request = produce_request(found.topic_id, place[1], batch)
                code, offset = outcome_of((yield Ask(found.address, produce, request)))
                if code == ErrorCode.NONE:
                    self.checker.acknowledge(place, offset, values)
                    break
                if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    self.checker.acknowledge_somewhere(place, values)
                    break
                scripts.refused(code)
                if code not in TRY_AGAIN:
                    raise Violation(f"{place}: an idempotent producer was told {code!r}")
                yield REST_MS
            self.unanswered[place] -= 1
            sequence += len(values)
            yield self._rest()


def new_producer(scripts: Scripts) -> Generator[Ask | int, Any, tuple[int, int] | None]:
    """Id and epoch of a producer without transactions; None: the clients are stopped."""
    while not scripts.stopped:
        request = init_producer_id.InitProducerIdRequest(None, 60_000)
        answer = yield Ask(scripts.anybody(), init_producer_id, request)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            return answer.producer_id, answer.producer_epoch
        scripts.refused(None if answer is None else answer.error_code)
        yield REST_MS
    return None


def produce_request(
    topic_id: bytes, index: int, batch: bytes, transactional_id: str | None = None
) -> Any:
    part = produce.PartitionProduceData(index, batch)
    topic = produce.TopicProduceData(topic_id=topic_id, partition_data=[part])
    return produce.ProduceRequest(transactional_id, -1, 2_000, [topic])


def outcome_of(response: Any) -> tuple[int | None, int]:
    """Returns error code and base offset of the only partition; None as the code if no answer
    came."""
    if response is None:
        return None, -1
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset
