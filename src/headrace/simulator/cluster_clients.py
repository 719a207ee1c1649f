"""Producers and a consumer of a simulated cluster, on the same bad network as its nodes.

A producer sends each value once with acks=all and goes on, whatever comes of it: what is not
acknowledged may be there or not. The consumer reads each partition in order from its leader.
"""

from __future__ import annotations

from typing import Any

from headrace.environment import Address
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import fetch, produce
from headrace.protocol.record_batch import Record, build, headers_in, walk
from headrace.simulator.peers import VirtualPeers
from headrace.simulator.replica_checker import Place, ReplicaChecker
from headrace.simulator.whole_nodes import CLIENT_PORT, CLIENTS, Cluster

TIMEOUT_MS = 3_000
REST_MS = 100  # after an answer that is none
LARGEST_RECORD = 1 << 20
CODES = {int(code): code.name for code in ErrorCode}


class Clients:
    def __init__(
        self, cluster: Cluster, checker: ReplicaChecker, topic: str, partitions: int
    ) -> None:
        self.cluster = cluster
        self.checker = checker
        self.places: list[Place] = [(topic, index) for index in range(partitions)]
        self.stopped = False
        self.refusals: dict[str, int] = {}  # how often a producer was told what
        self._number = 0
        self._next_offset = dict.fromkeys(self.places, 0)
        self._peers = VirtualPeers(
            cluster.world,
            cluster.network,
            100,  # no node's id
            find=cluster.find,
            is_alive=lambda: True,
            end_turn=lambda: None,
        )

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.checker.acknowledged.values()))

    @property
    def read(self) -> int:
        return sum(map(len, self.checker.seen.values()))

    def start(self) -> None:
        for place in self.places:
            self._produce(place)
            self._consume(place)

    # Where to ask

    def _leader(self, place: Place) -> tuple[bytes, Address] | None:
        """As any node that is up tells it: it may be long out of date."""
        up = [member for member in self.cluster.members.values() if member.is_up]
        if not up:
            return None
        image = self.cluster.world.chance.choice(up).node.broker.image
        topic = image.topics.get(place[0])
        if topic is None or topic.partitions[place[1]].leader < 0:
            return None
        host = f"node{topic.partitions[place[1]].leader}"
        return topic.id, Address(host, CLIENT_PORT, CLIENTS)

    def _later(self, delay_ms: int, do: Any, place: Place) -> None:
        if not self.stopped:
            self.cluster.world.at(delay_ms, lambda: do(place))

    # Producing

    def _produce(self, place: Place) -> None:
        found = self._leader(place)
        if found is None or self.stopped:
            self._later(REST_MS, self._produce, place)
            return
        topic_id, address = found
        self._number += 1
        value = b"%06d" % self._number
        self.checker.sent.setdefault(place, set()).add(value)
        batch = build([Record(None, value, timestamp=self.cluster.world.now.wall_ms)])
        part = produce.PartitionProduceData(place[1], batch)
        topic = produce.TopicProduceData(topic_id=topic_id, partition_data=[part])
        request = produce.ProduceRequest(None, -1, TIMEOUT_MS, [topic])

        def answered(response: produce.ProduceResponse | None) -> None:
            self._produced(place, value, response)

        self._peers.ask(address, "produce", produce, request, answered, timeout_ms=TIMEOUT_MS)

    def _produced(
        self, place: Place, value: bytes, response: produce.ProduceResponse | None
    ) -> None:
        answer = None if response is None else response.responses[0].partition_responses[0]
        if answer is not None and answer.error_code == ErrorCode.NONE:
            self.checker.acknowledge(place, answer.base_offset, value)
            self._later(self.cluster.world.chance.randint(1, 50), self._produce, place)
            return
        said = "nothing" if answer is None else CODES[answer.error_code]
        self.refusals[said] = self.refusals.get(said, 0) + 1
        self._later(REST_MS, self._produce, place)

    # Consuming

    def _consume(self, place: Place) -> None:
        found = self._leader(place)
        if found is None:
            self._later(REST_MS, self._consume, place)
            return
        topic_id, address = found
        wanted = fetch.FetchPartition(place[1])
        wanted.fetch_offset = self._next_offset[place]
        wanted.partition_max_bytes = LARGEST_RECORD
        request = fetch.FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=LARGEST_RECORD,
            topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[wanted])],
        )

        def answered(response: fetch.FetchResponse | None) -> None:
            self._consumed(place, response)

        self._peers.ask(address, "fetch", fetch, request, answered, timeout_ms=TIMEOUT_MS)

    def _consumed(self, place: Place, response: fetch.FetchResponse | None) -> None:
        records = b""
        if response is not None and response.responses:
            answer = response.responses[0].partitions[0]
            if answer.error_code == ErrorCode.NONE:
                records = bytes(answer.records or b"")
        for offset, value in values_in(records):
            if offset >= self._next_offset[place]:
                self.checker.read(place, offset, value)
                self._next_offset[place] = offset + 1
        self._later(20 if records else REST_MS, self._consume, place)


def values_in(records: bytes) -> list[tuple[int, bytes]]:
    found = []
    for at, header in headers_in(records):
        if not header.is_control:
            batch = records[at : at + header.size]
            found += [(r.offset, r.value or b"") for r in walk(batch, LARGEST_RECORD)]
    return found
