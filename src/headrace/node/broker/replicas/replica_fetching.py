"""Fetches for all replicas here that follow: one `ReplicaFetcher` per leader broker, over `Peers`.

`follow` is called with every replica whose role may have changed, and moves it to the fetcher of
its leader; `go_on` sends the requests that are due. A fetcher has one request under way; its next
one leaves in the turn that has taken the last answer, after the writes of that turn. Large answers
are taken in slices (`answers`), between other requests. A leader that does not answer is asked
again after `replica.fetch.backoff.ms`, with a new session. With durability `disk` the next fetch
waits for the flush of the last fetched records (`flushed`). A node whose partitions have no other
replicas has no fetcher, and pays one truth test per tick.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.environment import Address, Peers
from headrace.node.broker.replicas.replication_quotas import ReplicationQuotas
from headrace.node.metadata.image import NO_LEADER
from headrace.node.replication.replica import PartitionReplica
from headrace.node.replication.replica_fetcher import ReplicaFetcher
from headrace.node.serving.slices import Lane
from headrace.wire.protocol.messages import fetch, list_offsets
from headrace.wire.protocol.messages.fetch import FetchRequest, FetchResponse
from headrace.wire.protocol.messages.list_offsets import ListOffsetsResponse

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

log = logging.getLogger(__name__)

LANE = "replica-fetch"
# An answer with more than either is taken in slices: 20 us per partition, 0.6 ms per MB.
MOST_PARTITIONS_AT_ONCE = 50
MOST_BYTES_AT_ONCE = 1 << 20

Key = tuple[bytes, int]  # topic id and partition


class ReplicaFetching:
    __slots__ = (
        "peers",
        "answers",
        "fetches",
        "failures",
        "bytes_in",
        "quotas",
        "_broker",
        "_fetchers",
        "_leaders",
        "_stopped",
    )

    def __init__(self, broker: Broker, peers: Peers | None) -> None:
        self.peers = peers  # None: there are no other nodes
        self.answers = Lane()  # large answers, taken in slices
        self.fetches = 0
        self.failures = 0  # fetches without an answer
        self.bytes_in = 0
        self.quotas = ReplicationQuotas(
            broker.node_id,
            broker.values["replication.quota.window.num"],
            broker.values["replication.quota.window.size.seconds"] * 1_000,
        )
        self.quotas.follow(broker.image.configs)
        self._broker = broker
        self._fetchers: dict[int, ReplicaFetcher] = {}  # by leader
        self._leaders: dict[Key, int] = {}  # the leader of each replica that fetches
        self._stopped = False
        broker.this.on_flushed = self.flushed
        broker.this.is_held_back = self.is_held_back

    # Leaders and followers

    def follow(self, replica: PartitionReplica) -> None:
        """The replica's role may have changed. Call `go_on` after all such replicas."""
        key = replica.topic_id, replica.index
        leader = NO_LEADER if replica.following is None else replica.following.leader
        before = self._leaders.get(key, NO_LEADER)
        if before not in (NO_LEADER, leader):
            self._fetchers[before].remove(*key)
        if leader == NO_LEADER:
            self._leaders.pop(key, None)
            return
        self._leaders[key] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(self._broker.this, leader)
        fetcher.add(replica)
        fetcher.rest_no_more()

    def forget(self, replica: PartitionReplica) -> None:
        """The replica was removed from this broker."""
        leader = self._leaders.pop((replica.topic_id, replica.index), None)
        if leader is not None:
            self._fetchers[leader].remove(replica.topic_id, replica.index)

    def stop(self) -> None:
        """Stop fetching; answers that still come are ignored."""
        self._stopped = True

    # Fetches

    def go_on(self) -> None:
        """Send the fetches that are due. Also call it every tick, since pauses end and leaders come
        back."""
        if self._fetchers:
            for fetcher in list(self._fetchers.values()):
                self._fetch(fetcher)

    def flushed(self, replica: Any) -> None:
        """The records of a follower are on its disk: its next fetch may report them."""
        leader = self._leaders.get((replica.topic_id, replica.index))
        if leader is not None:
            self._fetch(self._fetchers[leader])

    def _fetch(self, fetcher: ReplicaFetcher) -> None:
        if self.peers is None or self._stopped or fetcher.is_busy:
            return
        if not fetcher.replicas:
            self._fetchers.pop(fetcher.leader, None)
            return
        address = self._address_of(fetcher.leader)
        if address is None:
            return
        now = self._broker.now
        request = fetcher.next_request(now.monotonic_ms, now.wall_ms)
        if request is None:
            return
        settings = self._broker.this.settings
        is_fetch = isinstance(request, FetchRequest)
        self.fetches += is_fetch
        self.peers.ask(
            address,
            LANE,
            fetch if is_fetch else list_offsets,
            request,
            partial(self._fetched if is_fetch else self._bounds_told, fetcher),
            timeout_ms=settings.fetch_wait_max_ms + settings.socket_timeout_ms,
        )

    def _address_of(self, leader: int) -> Address | None:
        """Returns None if it is not registered, or has no listener for brokers."""
        listener = self._broker.inter_broker_listener
        found = self._broker.image.brokers.get(leader)
        for endpoint in () if found is None else found.endpoints:
            if endpoint.name == listener:
                return Address(endpoint.host, endpoint.port, listener)
        return None

    def _fetched(self, fetcher: ReplicaFetcher, response: FetchResponse | None) -> None:
        if self._stopped:
            return
        if response is None:
            self.failures += 1
            fetcher.failed(self._broker.now.monotonic_ms)
            return
        taking = self._take(fetcher, response)
        partitions, size = _size_of(response)
        self.bytes_in += size
        if self.quotas.follower.topics:
            self._count_throttled(fetcher, response)
        if partitions > MOST_PARTITIONS_AT_ONCE or size > MOST_BYTES_AT_ONCE:
            self.answers.add(taking)
            return
        for _ in taking:
            pass

    def _take(self, fetcher: ReplicaFetcher, response: FetchResponse) -> Iterator[None]:
        now = self._broker.now
        whole = False
        try:
            for replica in fetcher.take(response, now.monotonic_ms, now.wall_ms):
                self._tend(replica)
                yield
                if self._stopped:
                    return
            whole = True
        finally:
            if not whole:  # a bug, which others report
                fetcher.failed(now.monotonic_ms)
        self._fetch(fetcher)

    def is_held_back(self, replica: PartitionReplica, now_ms: int) -> bool:
        """Returns whether the replica is throttled, the rate is used up, and it is not in sync (so
        acks=all does not wait for it)."""
        quota = self.quotas.follower
        if not quota.topics or not quota.is_throttled(replica.topic, replica.index):
            return False
        described = self._broker.image.topics_by_id.get(replica.topic_id)
        if described is None or replica.index >= len(described.partitions):
            return False
        in_sync = self._broker.node_id in described.partitions[replica.index].isr
        return not in_sync and quota.is_exceeded(now_ms)

    def _count_throttled(self, fetcher: ReplicaFetcher, response: FetchResponse) -> None:
        quota = self.quotas.follower
        for topic in response.responses:
            for answer in topic.partitions:
                replica = fetcher.replicas.get((topic.topic_id, answer.partition_index))
                if replica is not None and quota.is_throttled(replica.topic, replica.index):
                    now_ms = self._broker.now.monotonic_ms
                    quota.record(len(answer.records or b""), now_ms)

    def _tend(self, replica: PartitionReplica) -> None:
        """Called after a follower has taken an answer."""
        if replica.removed_files:
            removed, replica.removed_files = replica.removed_files, []
            delay_ms = replica.log.settings.file_delete_delay_ms
            self._broker.partitions.remove_later(removed, delay_ms)
        if replica.is_durable and replica.vouched_end() < replica.log.end_offset:
            self._broker.flush_soon(replica)

    def _bounds_told(self, fetcher: ReplicaFetcher, response: ListOffsetsResponse | None) -> None:
        if self._stopped:
            return
        now = self._broker.now
        if response is None:
            fetcher.failed(now.monotonic_ms)
            return
        for replica in fetcher.bounds_answered(response, now.monotonic_ms, now.wall_ms):
            self._tend(replica)
        self._fetch(fetcher)

    # For metrics and other parts

    @property
    def following(self) -> int:
        """Returns the number of replicas that fetch from another broker."""
        return len(self._leaders)


def inter_broker_listener(values: Mapping[str, Any]) -> str:
    """Returns the name of the listener that brokers use among themselves."""
    named: str | None = values["inter.broker.listener.name"]
    protocol: str = values["security.inter.broker.protocol"]
    return named.upper() if named else protocol


def _size_of(response: FetchResponse) -> tuple[int, int]:
    """Returns the number of partitions, and the bytes of their records."""
    partitions = size = 0
    for topic in response.responses:
        partitions += len(topic.partitions)
        for answer in topic.partitions:
            size += len(answer.records or b"")
    return partitions, size
