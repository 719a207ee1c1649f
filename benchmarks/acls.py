"""What do 10,000 access control entries cost each request?

Both brokers run their authorizer; the client is no super user, so every request is looked up. The
load is that of `one_record_requests`, first with the few entries that it needs, then with 10,000:
half of them name topics, half name beginnings of topics, for 2,500 users. Then a request that is
about many resources at once: the metadata of 1,000 topics, described by a prefix. Resources that no
entry names are open in both, so that brokers and administrators need none.
Warm-up: the same load until its cost is steady (`warm_up.py`).
"""

from __future__ import annotations

import socket
import time

from headrace.wire.protocol.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.messages import create_acls, metadata

from . import wire
from .benchmark import Benchmark, Run
from .load import ProduceLoad, measured
from .results import Better, Goal, Row, Samples
from .warm_up import LIMIT_S, until_steady

PRODUCERS = 8
VALUE_SIZE = 100
ENTRIES = 10_000
PER_USER = 4
AT_ONCE = 1_000
TOPICS = 1_000
METADATA_REQUESTS = 20
CREATE_ACLS_VERSION = 3
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}

Pattern = tuple[str, PatternType, str, Operation]


def measure(run: Run) -> Samples:
    run.target.settings |= SETTINGS
    with run.target.start() as broker:
        with wire.connect(broker.port) as connection:
            add(connection, OURS)
        load = ProduceLoad.open(
            broker, "requests", producers=PRODUCERS, records=1, value_size=VALUE_SIZE
        )
        until_steady(broker, load.run_for, limit_s=run.amount(LIMIT_S, 2.0))
        seconds = run.amount(6.0, 1.0)
        few, _ = cost(run, load, seconds, "few entries")
        with wire.connect(broker.port) as connection:
            begin = time.perf_counter()
            add(connection, others(run.count(ENTRIES, 1_000)))
            added_s = time.perf_counter() - begin
        until_steady(broker, load.run_for, limit_s=run.amount(LIMIT_S, 2.0))
        many, rate = cost(run, load, seconds, "10,000 entries")
        load.close()
        metadata_ms = ask_for_many(run, broker.port)
    return {
        "rate": [rate],
        "cpu": [many],
        "more": [many - few],
        "metadata": [metadata_ms],
        "add": [added_s],
    }


OURS: list[Pattern] = [
    ("requests", PatternType.LITERAL, "User:ANONYMOUS", Operation.WRITE),
    ("many-", PatternType.PREFIXED, "User:ANONYMOUS", Operation.DESCRIBE),
]


def others(count: int) -> list[Pattern]:
    """Entries of other people, as a cluster of many teams has them."""
    found: list[Pattern] = []
    for user in range(count // PER_USER):
        who = f"User:team-{user}"
        found += [
            (f"team-{user}.orders", PatternType.LITERAL, who, Operation.WRITE),
            (f"team-{user}.payments", PatternType.LITERAL, who, Operation.READ),
            (f"team-{user}.", PatternType.PREFIXED, who, Operation.READ),
            (f"shared-{user}-", PatternType.PREFIXED, who, Operation.WRITE),
        ]
    return found


def add(connection: socket.socket, entries: list[Pattern]) -> None:
    for first in range(0, len(entries), AT_ONCE):
        wanted = [
            create_acls.AclCreation(
                ResourceType.TOPIC, name, pattern, who, "*", operation, Permission.ALLOW
            )
            for name, pattern, who, operation in entries[first : first + AT_ONCE]
        ]
        request = create_acls.CreateAclsRequest(wanted)
        for result in wire.ask(connection, create_acls, CREATE_ACLS_VERSION, request).results:
            wire.succeed(result.error_code, "an access control entry")


def cost(run: Run, load: ProduceLoad, seconds: float, what: str) -> tuple[float, float]:
    """Microseconds of the broker's processor for a request, and requests per second."""
    before = load.requests
    usage = measured(load.broker, lambda: load.run_for(seconds))
    requests = load.requests - before
    run.watch_noise(f"requests with {what}", usage)
    return usage.broker_s / requests * 1e6, requests / usage.wall_s


def ask_for_many(run: Run, port: int) -> float:
    """Milliseconds of a Metadata request that names many topics; the median."""
    names = [f"many-{number}" for number in range(run.count(TOPICS, 100))]
    with wire.connect(port) as connection:
        wire.create_topics_with(connection, names, partitions=1)
        wanted = [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.MetadataRequest(wanted, allow_auto_topic_creation=False)
        times = []
        for _ in range(METADATA_REQUESTS):
            begin = time.perf_counter()
            answer = wire.ask(connection, metadata, wire.METADATA_VERSION, request)
            times.append((time.perf_counter() - begin) * 1e3)
            for topic in answer.topics:
                wire.succeed(topic.error_code, f"metadata of {topic.name}")
    return sorted(times)[len(times) // 2]


BENCHMARK = Benchmark(
    "Access control entries",
    (
        Row("rate", "one-record produce requests, 10,000 entries", "per second",
            Goal(Better.MORE, ratio=1.0)),
        Row("cpu", "the same, broker CPU", "us each", Goal(Better.LESS, ratio=1.0)),
        Row("more", "of that, for 10,000 entries more", "us each"),
        Row("metadata", "Metadata of 1,000 topics, 10,000 entries", "ms",
            Goal(Better.LESS, ratio=1.0)),
        Row("add", "10,000 entries added, 1,000 at a time", "s", Goal(Better.LESS, ratio=1.0)),
    ),
    measure,
)  # fmt: skip
