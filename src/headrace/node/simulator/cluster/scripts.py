"""Clients of a simulated cluster: each is a generator that yields what it waits for.

`answer = yield Ask(...)` sends a request on the same bad network as the nodes', and gets None if no
answer came in time; `yield 100` waits. A client asks the leader that the metadata of any running
node names. These metadata may be long out of date, as those of a real client may be.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.environment import Address
from headrace.node.metadata.image import MetadataImage
from headrace.node.simulator.connections import Connections
from headrace.node.simulator.whole_nodes import CLIENT_PORT, CLIENTS, Cluster
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.java_hash import partition_for_group

TIMEOUT_MS = 3_000
CLIENT_ID = 100  # no node's
REST_MS = 200  # after an answer that is none
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"

CODES = {int(code): code.name for code in ErrorCode}

Place = tuple[str, int]  # topic and partition


@dataclass(slots=True)
class Ask:
    to: Address
    messages: Any
    request: Any
    version: int | None = None
    timeout_ms: int = TIMEOUT_MS


class Leader(NamedTuple):
    topic_id: bytes
    address: Address
    epoch: int


Script = Generator[Ask | int, Any, None]
# The request that a client retries, at the present leader.
TRY_AGAIN = {
    None,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    # From a leader that was deposed and does not know it: it lacks the batches between.
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


class Scripts:
    """Runs clients, and gives them the leaders to ask."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.chance = cluster.world.chance
        self.stopped = False  # no client begins anything new
        self.refusals: dict[str, int] = {}  # the refusals that clients got, and how often
        self._numbers = 0
        self._epochs: dict[Place, int] = {}  # the newest leader epoch that clients have seen
        self._connections = Connections(
            cluster.world,
            cluster.network,
            CLIENT_ID,
            find=cluster.find,
            enter=lambda do: do(),
        )

    def start(self, script: Script) -> None:
        self._step(script, None)

    def _step(self, script: Script, value: Any) -> None:
        try:
            wanted = script.send(value)
        except StopIteration:
            return
        if isinstance(wanted, int):
            self.cluster.world.at(wanted, lambda: self._step(script, None))
            return
        self._connections.ask(
            wanted.to,
            "requests",
            wanted.messages,
            wanted.request,
            lambda answer: self._step(script, answer),
            timeout_ms=wanted.timeout_ms,
            newest=wanted.version,
        )

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def refused(self, code: int | None) -> None:
        name = "nothing" if code is None else CODES[code]
        self.refusals[name] = self.refusals.get(name, 0) + 1

    # Where to ask

    def image(self) -> MetadataImage | None:
        up = [member for member in self.cluster.members.values() if member.is_up]
        return self.chance.choice(up).node.broker.image if up else None

    def anybody(self) -> Address:
        return _address(self.chance.choice(list(self.cluster.members)))

    def leader(self, place: Place) -> Leader | None:
        """Returns None if there is no leader, or if the metadata are older than others that this
        client has seen."""
        image = self.image()
        topic = None if image is None else image.topics.get(place[0])
        if topic is None or topic.partitions[place[1]].leader < 0:
            return None
        partition = topic.partitions[place[1]]
        if partition.leader_epoch < self._epochs.get(place, 0):
            return None
        self._epochs[place] = partition.leader_epoch
        return Leader(topic.id, _address(partition.leader), partition.leader_epoch)

    def coordinator(self, internal_topic: str, key: str) -> Address | None:
        image = self.image()
        topic = None if image is None else image.topics.get(internal_topic)
        if topic is None:
            return None
        leader = topic.partitions[partition_for_group(key, len(topic.partitions))].leader
        return None if leader < 0 else _address(leader)


def _address(node_id: int) -> Address:
    return Address(f"node{node_id}", CLIENT_PORT, CLIENTS)
