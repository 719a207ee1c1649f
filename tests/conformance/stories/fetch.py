"""Fetch 4-18 without sessions: ranges, sizes, waiting, refusals."""

from __future__ import annotations

import time

from headrace.wire.protocol.messages import fetch, produce
from headrace.wire.protocol.messages.fetch import FetchRequest, ReplicaState
from headrace.wire.protocol.messages.produce import ProduceRequest
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import UNKNOWN, fetch_request, fetch_topic, from_offset


def filled(stage: Stage, name: str) -> Topic:
    """Two partitions: batches at 0-1, 2 and 3 in the first, one at 0 in the second."""
    topic = stage.topic(name, partitions=3)
    stage.produce(topic, build(R(b"a"), R(b"b")), build(R(b"c" * 300)), build(R(b"d"), codec="lz4"))
    stage.produce(topic, build(R(b"e" * 300)), partition=1)
    return topic


def offsets(stage: Stage) -> None:
    topic = filled(stage, "fetch-offsets")
    for version in fetch.VERSIONS:
        for offset in (0, 1, 2, 3, 4, 5, -1, 2**62):
            wanted = fetch_request(fetch_topic(version, topic, from_offset(offset)))
            stage.ask(f"v{version} from {offset}", fetch, version, wanted)
        empty = fetch_request(fetch_topic(version, topic, from_offset(0, partition=2)))
        stage.ask(f"v{version} empty partition", fetch, version, empty)
        committed = fetch_request(fetch_topic(version, topic, from_offset(0)), isolation_level=1)
        stage.ask(f"v{version} committed", fetch, version, committed)


def places_that_are_not_there(stage: Stage) -> None:
    topic = filled(stage, "fetch-places")
    for version in fetch.VERSIONS:

        def ask(line: str, request: FetchRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", fetch, version, request)

        ask("no topics", fetch_request())
        ask("no partitions", fetch_request(fetch_topic(version, topic)))
        ask("unknown topic", fetch_request(fetch_topic(version, UNKNOWN, from_offset(0))))
        partitions = [from_offset(0), from_offset(0, partition=9), from_offset(0, partition=-1)]
        ask("unknown partitions", fetch_request(fetch_topic(version, topic, *partitions)))
        both = [
            fetch_topic(version, UNKNOWN, from_offset(0)),
            fetch_topic(version, topic, *partitions),
        ]
        ask("known and unknown", fetch_request(*both))
        if version < 13:
            named = fetch_topic(version, Topic("bad name", bytes(16)), from_offset(0))
            ask("bad name", fetch_request(named))
        else:
            ask("no id", fetch_request(fetch_topic(version, Topic("", bytes(16)), from_offset(0))))


def epochs_of_leaders(stage: Stage) -> None:
    topic = filled(stage, "fetch-epochs")
    for version in range(9, 19):
        for epoch in (0, 1, 99):
            wanted = fetch_topic(version, topic, from_offset(0, leader_epoch=epoch))
            stage.ask(f"v{version} epoch {epoch}", fetch, version, fetch_request(wanted))
    for version in range(12, 19):
        for line, offset, epoch in [("right", 2, 0), ("later", 2, 5), ("beyond the end", 9, 0)]:
            wanted = fetch_topic(version, topic, from_offset(offset, last_fetched_epoch=epoch))
            stage.ask(f"v{version} last fetched: {line}", fetch, version, fetch_request(wanted))


def sizes(stage: Stage) -> None:
    """The first batch comes whole however large it is (KIP-74); others only as far as they fit."""
    topic = filled(stage, "fetch-sizes")
    for version in (4, 11, 12, 13, 18):

        def ask(line: str, max_bytes: int, first: int, second: int, version: int = version) -> None:
            wanted = fetch_topic(
                version,
                topic,
                from_offset(0, max_bytes=first),
                from_offset(0, partition=1, max_bytes=second),
            )
            request = fetch_request(wanted, max_bytes=max_bytes)
            stage.ask(f"v{version} {line}", fetch, version, request)

        ask("all", 10_000, 10_000, 10_000)
        ask("one byte in all", 1, 10_000, 10_000)
        ask("one byte each", 10_000, 1, 1)
        ask("one byte everywhere", 1, 1, 1)
        ask("zero in all", 0, 10_000, 10_000)
        ask("zero each", 10_000, 0, 0)
        ask("negative in all", -1, 10_000, 10_000)
        ask("negative each", 10_000, -1, -1)


def waiting(stage: Stage) -> None:
    """Whether an answer takes its time: who may wait waits for 0.7 s, who must not has 5 s."""
    topic = filled(stage, "fetch-waiting")

    def ask(line: str, version: int, offset: int, wait_ms: int, min_bytes: int) -> None:
        wanted = fetch_topic(version, topic, from_offset(offset))
        began = time.monotonic()
        request = fetch_request(wanted, max_wait_ms=wait_ms, min_bytes=min_bytes)
        stage.ask(line, fetch, version, request)
        took = time.monotonic() - began
        waited = took >= 0.8 * (wait_ms if wait_ms > 0 else 5000) / 1000
        stage.keep(f"{line}: time", "waited" if waited else "at once")

    for version in (4, 12, 18):
        ask(f"v{version} at the end, one byte", version, 4, 700, 1)
        ask(f"v{version} at the end, no bytes", version, 4, 5000, 0)
        ask(f"v{version} something there", version, 0, 5000, 1)
        ask(f"v{version} more than there is", version, 0, 700, 1_000_000)
        ask(f"v{version} refused", version, 99, 5000, 1)
        ask(f"v{version} no time", version, 4, 0, 1000)
        ask(f"v{version} negative time", version, 4, -1, 1000)


def waiting_ends_when_records_come(stage: Stage) -> None:
    topic = filled(stage, "fetch-wakes")
    wanted = fetch_request(fetch_topic(18, topic, from_offset(4)), max_wait_ms=10_000, min_bytes=1)
    waiting = stage.connection
    waiting.send(fetch, 18, wanted)
    stage._connection = None  # the produce goes by another way
    stage.produce(topic, build(R(b"woken")))
    stage.keep("woken", waiting.answer(fetch, 18))
    waiting.close()


def answers_keep_the_order_of_requests(stage: Stage) -> None:
    topic = filled(stage, "fetch-order")
    waiting = fetch_request(fetch_topic(18, topic, from_offset(4)), max_wait_ms=500, min_bytes=1)
    stage.connection.send(fetch, 18, waiting)
    stage.connection.send(produce, 13, ProduceRequest(None, -1, 1000, []))
    stage.keep("fetch", stage.connection.answer(fetch, 18))
    stage.keep("produce", stage.connection.answer(produce, 13))


def followers(stage: Stage) -> None:
    """A fetch in the name of a broker that is no replica."""
    topic = filled(stage, "fetch-followers")
    for version in (11, 14, 18):
        for replica in (1, 5):
            request = fetch_request(fetch_topic(version, topic, from_offset(0, leader_epoch=0)))
            if version < 15:
                request.replica_id = replica
            else:
                request.replica_state = ReplicaState(replica, -1)
            stage.ask(f"v{version} replica {replica}", fetch, version, request)


STORIES = (
    offsets,
    places_that_are_not_there,
    epochs_of_leaders,
    sizes,
    waiting,
    waiting_ends_when_records_come,
    answers_keep_the_order_of_requests,
    followers,
)
