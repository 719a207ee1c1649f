"""Groups that are behind: topics with records, commits, and an app, for tests of commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from headrace import App
from headrace.app import Message
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine

Headers = list[tuple[str, bytes]]


def filled(headrace: CommandLine, topic: str, partitions: int, count: int) -> None:
    headrace("topics", "create", topic, "--partitions", str(partitions))
    add(headrace, topic, partitions, range(count))


def add(
    headrace: CommandLine,
    topic: str,
    partitions: int,
    numbers: Sequence[int],
    headers: Headers | None = None,
    timestamp_ms: int | None = None,
) -> None:
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    for number in numbers:
        given: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        producer.produce(
            topic, b"%d" % number, key=b"k%d" % (number % 7), partition=number % partitions,
            headers=list(headers or []), **given,
        )  # fmt: skip
    assert producer.flush(30) == 0


def commit(headrace: CommandLine, group: str, topic: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": headrace.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(headrace: CommandLine, group: str, topic: str) -> list[int]:
    """By partition; empty while the group has committed nothing, or does not exist yet."""
    asked = headrace.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(60).topic_partitions
    return [p.offset for p in sorted(found, key=lambda p: p.partition) if p.topic == topic]


def delete_before(headrace: CommandLine, topic: str, offset: int) -> None:
    """As retention does, in the topic's first partition."""
    [asked] = headrace.admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    asked.result(30)


def app_of(headrace: CommandLine, topic: str, handled: list[tuple[int, str]]) -> App:
    app = App(headrace.bootstrap, group=f"{topic}-app", delay="off")

    @app.on(topic)
    def handle(value: str, message: Message) -> None:
        handled.append((int(value), message.id))

    return app


def app_that_is_behind(
    headrace: CommandLine, topic: str, *, done: int, behind: int
) -> list[tuple[int, str]]:
    """Two partitions; what the app handles from now on goes into the list."""
    handled: list[tuple[int, str]] = []
    filled(headrace, topic, 2, done)
    with app_of(headrace, topic, handled).running():
        until(lambda: len(handled) == done)
        until(lambda: committed(headrace, f"{topic}-app", topic) == [done // 2] * 2)
    add(headrace, topic, 2, range(done, done + behind))
    handled.clear()
    return handled


def handled_until(
    headrace: CommandLine, topic: str, handled: list[tuple[int, str]], count: int
) -> list[int]:
    """Run the app until it has handled so many, and nothing more comes."""
    with app_of(headrace, topic, handled).running():
        until(lambda: len(handled) >= count)
        [group] = headrace.json("groups", "describe", f"{topic}-app")
        ends = [each["end_offset"] for each in group["partitions"] if each["topic"] == topic]
        until(lambda: committed(headrace, f"{topic}-app", topic) == ends)
    return sorted(number for number, _ in handled)
