"""How fast does a share group hand out and accept records, and what does that cost the broker?

One member with a raw socket: each ShareFetch accepts what the one before acquired, 500 records of
100 bytes in batches of 50. Then records come one by one, 2 ms apart: the time from the send of one
to the answer that its acknowledgement is kept. One node each, the state of the group included.
Warm-up: a tenth of the records.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from headrace.wire.protocol.messages import (
    incremental_alter_configs,
    metadata,
    share_fetch,
    share_group_heartbeat,
)
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from headrace.wire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from . import coordinators, wire
from .benchmark import Benchmark, Run
from .load import measured
from .results import Better, Goal, Row, Samples

TOPIC, GROUP, MEMBER = "jobs", "workers", "member-of-the-benchmark"
GROUPS = 32  # the kind of resource
ACCEPT = 1
BATCH = 50
MOST_RECORDS = 500
PATIENCE_S = 60.0


class Member:
    """Joins, then fetches and accepts in one session."""

    def __init__(self, connection: socket.socket, topic_id: bytes) -> None:
        self.connection = connection
        self.topic_id = topic_id
        self.epoch = 0
        self.held: list[AcknowledgementBatch] = []

    def join(self) -> None:
        change = AlterableConfig("share.auto.offset.reset", 0, "earliest")
        wanted = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUPS, GROUP, [change])])
        wire.ask(self.connection, incremental_alter_configs, 1, wanted)
        coordinators.find(self.connection, [GROUP], coordinators.GROUP)
        epoch, deadline = 0, time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            beat = ShareGroupHeartbeatRequest(GROUP, MEMBER, epoch, None, [TOPIC])
            answer = wire.ask(self.connection, share_group_heartbeat, 1, beat)
            epoch = answer.member_epoch if answer.error_code == 0 else epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            time.sleep(0.1)
        raise AssertionError("the member got no partition")

    def fetch(self, wait_ms: int = 500) -> int:
        """Accept what is held, and acquire more; returns how many records were accepted."""
        accepted = sum(each.last_offset - each.first_offset + 1 for each in self.held)
        request = ShareFetchRequest(GROUP, MEMBER, self.epoch, wait_ms, 1, 1 << 20)
        request.max_records = request.batch_size = MOST_RECORDS
        request.topics = [FetchTopic(self.topic_id, [FetchPartition(0, self.held)])]
        answer: Any = wire.ask(self.connection, share_fetch, 2, request)
        wire.succeed(answer.error_code, "the fetch")
        self.epoch += 1
        self.held = []
        for part in (part for topic in answer.responses for part in topic.partitions):
            wire.succeed(part.error_code, "the partition")
            wire.succeed(part.acknowledge_error_code, "the acknowledgement")
            self.held += [
                AcknowledgementBatch(each.first_offset, each.last_offset, [ACCEPT])
                for each in part.acquired_records
            ]
        return accepted

    def accept(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while count > 0:
            count -= self.fetch()
            assert time.monotonic() < deadline, "the records do not come"


def produce(connection: socket.socket, batches: int, records: int) -> None:
    frame = wire.produce_frame(TOPIC, 0, wire.batch_of(records, 100))
    for _ in range(batches):
        connection.sendall(frame)
        wire.check_produced(wire.receive_frame(connection))


def latencies(producing: socket.socket, member: Member, count: int) -> list[float]:
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        produce(producing, 1, 1)
        while not member.held:
            member.fetch()
        assert member.fetch(wait_ms=0) == 1
        found.append(1e3 * (time.perf_counter() - begin))
        time.sleep(0.002)
    return sorted(found)


def measure(run: Run) -> Samples:
    count = run.count(200_000, 10_000)
    with (
        run.target.start() as broker,
        wire.connect(broker.port) as connection,
        wire.connect(broker.port) as producing,
    ):
        wire.create_topics_with(connection, [TOPIC], partitions=1)
        named = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
        [topic] = wire.ask(connection, metadata, 12, named).topics
        member = Member(connection, topic.topic_id)
        member.join()
        produce(producing, count // 10 // BATCH, BATCH)
        member.accept(count // 10 - MOST_RECORDS)
        produce(producing, count // BATCH, BATCH)
        usage = measured(broker, lambda: member.accept(count))
        while member.held:
            member.fetch(wait_ms=0)
        times = latencies(producing, member, run.count(500, 50))
    run.watch_noise("share groups", usage)
    return {
        "rate": [count / usage.wall_s],
        "cpu": [1e6 * usage.broker_s / count],
        "p99": [times[int(len(times) * 0.99)]],
    }


BENCHMARK = Benchmark(
    "Share groups",
    (
        Row("rate", "records of a share group, accepted", "1/s", Goal(Better.MORE, ratio=1.0)),
        Row("cpu", "broker CPU per record", "us", Goal(Better.LESS, ratio=0.6)),
        Row("p99", "from produce to accept, p99", "ms"),
    ),
    measure,
)
