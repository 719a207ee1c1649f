"""Stream processors from PyPI: Quix Streams with both guarantees, and FastStream."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.interop.brokers import Node
from tests.interop.ecosystem import FOLDER, ecosystem_python, running
from tests.interop.topics import create_topic

WORDS = [f"word{n % 5}" for n in range(50)]


def put(broker: Node, topic: str, words: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for word in words:
        producer.produce(topic, word.encode(), key=word.encode())
    assert producer.flush(60) == 0


def read(broker: Node, topic: str, count: int, log: Path) -> list[tuple[str | None, str]]:
    """Committed records of partition 0 from the beginning: `count`, and what is there beyond."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads-by-hand",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[tuple[str | None, str]] = []
    deadline = time.monotonic() + 240
    try:
        while (message := consumer.poll(0.7)) is not None or len(seen) < count:
            if message is not None:
                assert message.error() is None, message.error()
                key, value = message.key(), message.value()
                assert value is not None
                seen.append((None if key is None else key.decode(), value.decode()))
            assert time.monotonic() < deadline, (
                f"only {len(seen)} of {count}\n{log.read_text()[-4000:]}"
            )
    finally:
        consumer.close()
    return seen


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_quix_streams_counts_words_over_a_restart(
    broker: Node, tmp_path: Path, guarantee: str
) -> None:
    source = create_topic(broker.bootstrap, f"quix-in-{guarantee}")
    sink = create_topic(broker.bootstrap, f"quix-out-{guarantee}")
    program = [str(ecosystem_python()), str(FOLDER / "quix_words.py"), broker.bootstrap]
    for run in (1, 2):
        put(broker, source, WORDS)
        # A state folder of its own each time: the second run has it from the changelog topic.
        command = [*program, source, sink, guarantee, str(tmp_path / f"state-{run}")]
        log = tmp_path / f"quix-{run}.log"
        with running(command, log):
            seen = read(broker, sink, run * len(WORDS), log)
        expected = {word: [str(n + 1) for n in range(10 * run)] for word in sorted(set(WORDS))}
        assert {word: [v for k, v in seen if k == word] for word in expected} == expected


def test_faststream_answers_each_message(broker: Node, tmp_path: Path) -> None:
    source = create_topic(broker.bootstrap, "fast-in")
    sink = create_topic(broker.bootstrap, "fast-out")
    put(broker, source, WORDS)
    command = [str(ecosystem_python()), str(FOLDER / "fast_words.py"), broker.bootstrap]
    log = tmp_path / "fast.log"
    with running([*command, source, sink], log):
        seen = read(broker, sink, len(WORDS), log)
    assert [value for _, value in seen] == [word.upper() for word in WORDS]
