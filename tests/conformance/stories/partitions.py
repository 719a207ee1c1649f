"""CreatePartitions 0-3 and DescribeTopicPartitions 0."""

from __future__ import annotations

from headrace.wire.protocol.messages import create_partitions, describe_topic_partitions
from headrace.wire.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.conformance.stage import Stage


def more_partitions(stage: Stage) -> None:
    for version in create_partitions.VERSIONS:
        name = f"grows-v{version}"
        stage.topic(name, partitions=2)

        def ask(
            line: str, *topics: CreatePartitionsTopic, dry: bool = False, version: int = version
        ) -> None:
            request = CreatePartitionsRequest(list(topics), 30_000, dry)
            stage.ask(f"v{version} {line}", create_partitions, version, request)

        def to(count: int, *assignments: list[int], name: str = name) -> CreatePartitionsTopic:
            wanted = [CreatePartitionsAssignment(brokers) for brokers in assignments] or None
            return CreatePartitionsTopic(name, count, wanted)

        ask("fewer", to(1))
        ask("as many", to(2))
        ask("none", to(0))
        ask("negative", to(-1))
        ask("unknown topic", to(3, name="never-was"))
        ask("bad name", to(3, name="bad name"))
        ask("twice in one request", to(3), to(4))
        ask("unknown broker", to(3, [77]))
        ask("too many assignments", to(3, [1], [1]))
        ask("too few assignments", to(4, [1]))
        ask("too many replicas", to(3, [1, 2]))
        ask("the same broker twice", to(3, [1, 1]))
        ask("no brokers", to(3, []))
        ask("empty assignment", CreatePartitionsTopic(name, 3, []))
        ask("only validated", to(9), dry=True)
        ask("nothing")
        ask("three", to(3))
        stage.until(lambda name=name: stage.is_ready(name, 3))  # type: ignore[misc]
        ask("five by assignment", to(5, [1], [1]))
        stage.until(lambda name=name: stage.is_ready(name, 5))  # type: ignore[misc]


def described_partitions(stage: Stage) -> None:
    stage.topic("described-a", partitions=3)
    stage.topic("described-b", partitions=2)

    def ask(
        line: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> None:
        topics = [TopicRequest(name) for name in names]
        request = DescribeTopicPartitionsRequest(topics, limit, Cursor(*cursor) if cursor else None)
        stage.ask(line, describe_topic_partitions, 0, request)

    ask("two", "described-b", "described-a")
    ask("twice the same", "described-a", "described-a")
    ask("unknown", "described-a", "never-was")
    ask("bad name", "bad name")
    ask("two at most", "described-a", "described-b", limit=2)
    ask("four at most", "described-a", "described-b", limit=4)
    ask("zero at most", "described-a", limit=0)
    ask("from a cursor", "described-a", "described-b", cursor=("described-a", 1))
    ask("from a later topic", "described-a", "described-b", cursor=("described-b", 0))
    ask("cursor at an unknown topic", "described-a", cursor=("described-aa", 0))
    ask("cursor behind the partitions", "described-a", "described-b", cursor=("described-a", 9))
    ask("negative cursor", "described-a", cursor=("described-a", -1))
    ask("more than allowed", "described-a", limit=1_000_000)


def all_partitions(stage: Stage) -> None:
    stage.topic("described-among-all")
    answer = stage.ask("all", describe_topic_partitions, 0, DescribeTopicPartitionsRequest())
    found = [topic for topic in answer.topics if topic.name == "described-among-all"]
    stage.answers["all"]["topics"] = len(found)


STORIES = (more_partitions, described_partitions, all_partitions)
