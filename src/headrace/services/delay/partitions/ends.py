"""Where partitions end at this moment, asked of their leaders.

The reader learns of new records by the answers to its fetches, and on an overloaded machine an
answer may take seconds. An instance without recent news of the log's end asks before it delivers,
so that nothing is delivered ahead of a record in the log that is due before. The loop waits for the
answer: a short request on a connection that stays open, and after a failure there is no request for
a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import monotonic

from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.services.delay.intake import Place
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import list_offsets, metadata

EARLIEST, LATEST = -2, -1
READ_COMMITTED = 1
CLIENT = -1  # ListOffsets' replica id
LONGEST_WAIT_S = 1.0
REST_AFTER_FAILURE_S = 1.0

Address = tuple[str, int]


class Ends:
    def __init__(self, connection: ClientSettings) -> None:
        self._connection = replace(connection, timeout_s=LONGEST_WAIT_S)
        self._leaders: dict[Place, Address] = {}
        self._wires: dict[Address, Wire] = {}
        self._ask_at = 0.0

    def of(self, places: Iterable[Place]) -> dict[Place, int]:
        """Returns the ends of what is committed, without partitions that could not be asked for."""
        wanted = list(places)
        if not wanted or monotonic() < self._ask_at:
            return {}
        try:
            found = self._ask(wanted)
        except ClientError:
            self._ask_at = monotonic() + REST_AFTER_FAILURE_S
            self.close()
            return {}
        if len(found) < len(wanted):  # a leader has changed
            self._leaders.clear()
        return found

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()
        self._leaders.clear()

    def _ask(self, wanted: list[Place]) -> dict[Place, int]:
        if any(place not in self._leaders for place in wanted):
            with any_broker(self._connection) as wire:
                self._leaders.update(leaders_of(find_topics(wire, {topic for topic, _ in wanted})))
        found = {}
        for address, asked in by_leader(wanted, self._leaders).items():
            if address not in self._wires:
                self._wires[address] = Wire(self._connection, address)
            found.update(offsets_of(self._wires[address], asked, LATEST))
        return found


def any_broker(connection: ClientSettings) -> Wire:
    *others, last = addresses(connection.bootstrap)
    for address in others:
        try:
            return Wire(connection, address)
        except ClientError:
            continue
    return Wire(connection, last)


def find_topics(wire: Wire, names: Iterable[str]) -> metadata.MetadataResponse:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    found: metadata.MetadataResponse = wire.ask(metadata, metadata.MetadataRequest(topics, False))
    return found


def leaders_of(found: metadata.MetadataResponse) -> dict[Place, Address]:
    brokers = {each.node_id: (each.host, each.port) for each in found.brokers}
    return {
        (topic.name or "", each.partition_index): brokers[each.leader_id]
        for topic in found.topics
        for each in topic.partitions
        if each.leader_id in brokers
    }


def by_leader(
    places: Iterable[Place], leaders: Mapping[Place, Address]
) -> dict[Address, dict[str, list[int]]]:
    found: dict[Address, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, partition in places:
        if (topic, partition) in leaders:
            found[leaders[topic, partition]][topic].append(partition)
    return found


def offsets_of(wire: Wire, asked: Mapping[str, list[int]], which: int) -> dict[Place, int]:
    """Returns the first or last offsets of partitions by topic, without those that the broker does
    not lead."""
    topics = [
        list_offsets.ListOffsetsTopic(
            topic, [list_offsets.ListOffsetsPartition(p, -1, which) for p in numbers]
        )
        for topic, numbers in asked.items()
    ]
    answer = wire.ask(list_offsets, list_offsets.ListOffsetsRequest(CLIENT, READ_COMMITTED, topics))
    return {
        (topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }
