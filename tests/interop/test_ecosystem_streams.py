"""Kafka Streams: WordCount with both guarantees, and the project's own compatibility program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.brokers import Node, make_node
from tests.interop.ecosystem import EcosystemSession
from tests.interop.topics import create_topic

LINES = [f"all streams lead to kafka {'even' if n % 2 == 0 else 'odd'} w{n % 7}" for n in range(60)]


@pytest.fixture(scope="module")
def streams() -> Iterator[EcosystemSession]:
    with EcosystemSession() as session:
        yield session


def put_lines(broker: Node, topic: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n, line in enumerate(lines):
        producer.produce(topic, line.encode(), partition=n % 2)
    assert producer.flush(60) == 0


def counts_of(printed: str) -> dict[str, list[int]]:
    """Each word with every count that was written for it, in order."""
    rows = (line.split(" ", 1) for line in printed.splitlines() if line.endswith("]"))
    return {word: [int(n) for n in counts.strip("[]").split(",")] for word, counts in rows}


def words(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


@pytest.mark.parametrize(
    ("guarantee", "protocol"),
    [
        ("at_least_once", "classic"),
        ("exactly_once_v2", "classic"),
        ("at_least_once", "streams"),
    ],
)
def test_word_count_and_its_state_after_a_restart(
    broker: Node, streams: EcosystemSession, tmp_path: Path, guarantee: str, protocol: str
) -> None:
    source = create_topic(broker.bootstrap, f"lines-{guarantee}-{protocol}", partitions=2)
    sink = create_topic(broker.bootstrap, f"counts-{guarantee}-{protocol}")
    # A crash may repeat output with the weaker guarantee, so only the stronger one gets one.
    crash = "w3" if guarantee == "exactly_once_v2" else "-"
    for lines in (LINES[:30], LINES):
        put_lines(broker, source, lines[-30:])
        wanted = words(lines)
        where = [broker.bootstrap, source, sink, f"app-{source}", guarantee, str(tmp_path)]
        printed = streams.run("WordCount", *where, str(wanted.total()), crash, protocol)
        assert counts_of(printed) == {word: list(range(1, n + 1)) for word, n in wanted.items()}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_published_broker_compatibility_program(
    target: str, streams: EcosystemSession, tmp_path: Path, guarantee: str
) -> None:
    settings = tmp_path / "streams.properties"
    program = "org.apache.kafka.streams.tests.BrokerCompatibilityTest"
    # It waits for the first count of its key, so each run needs a broker that has seen no other.
    with make_node(target, tmp_path / "node") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        names = ("brokerCompatibilitySourceTopic", "brokerCompatibilitySinkTopic")
        for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            created.result(60)
        settings.write_text(
            f"bootstrap.servers={node.bootstrap}\n"
            f"state.dir={tmp_path}\n"
            f"processing.guarantee={guarantee}\n"
        )
        printed = streams.run(program, str(settings), guarantee)
    assert "close Kafka Streams" in printed, printed
