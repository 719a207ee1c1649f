"""CreateTopics 2-7 and DeleteTopics 1-6 with each of their refusals."""

from __future__ import annotations

from headrace.wire.protocol.messages import create_topics, delete_topics
from headrace.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.conformance.stage import Stage


def assigned(name: str, *replicas: list[int], first: int = 0) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(first + index, brokers) for index, brokers in enumerate(replicas)
    ]
    return CreatableTopic(name, -1, -1, assignments)


def configured(name: str, key: str, value: str | None) -> CreatableTopic:
    return CreatableTopic(name, 1, 1, [], [CreatableTopicConfig(key, value)])


GOOD = {
    "three partitions": lambda name: CreatableTopic(name, 3, 1),
    "assignment": lambda name: assigned(name, [1], [1]),
    "settings": lambda name: configured(name, "retention.ms", "1234567"),
    "compacted": lambda name: configured(name, "cleanup.policy", "compact"),
    "dots": lambda name: CreatableTopic(f"{name}.x", 1, 1),
}
BAD = {
    "no partitions": lambda name: CreatableTopic(name, 0, 1),
    "minus two partitions": lambda name: CreatableTopic(name, -2, 1),
    "no replicas": lambda name: CreatableTopic(name, 1, 0),
    "two replicas": lambda name: CreatableTopic(name, 1, 2),
    "empty name": lambda name: CreatableTopic("", 1, 1),
    "dot": lambda name: CreatableTopic(".", 1, 1),
    "two dots": lambda name: CreatableTopic("..", 1, 1),
    "space": lambda name: CreatableTopic("a b", 1, 1),
    "umlaut": lambda name: CreatableTopic("ü", 1, 1),
    "250 letters": lambda name: CreatableTopic("a" * 250, 1, 1),
    "metadata's name": lambda name: CreatableTopic("__cluster_metadata", 1, 1),
    "count and assignment": lambda name: CreatableTopic(
        name, 1, 1, [CreatableReplicaAssignment(0, [1])]
    ),
    "unknown broker": lambda name: assigned(name, [77]),
    "the same broker twice": lambda name: assigned(name, [1, 1]),
    "no brokers": lambda name: assigned(name, []),
    "negative broker": lambda name: assigned(name, [-1]),
    "begins at partition 1": lambda name: assigned(name, [1], first=1),
    "unequal assignment": lambda name: assigned(name, [1], [1, 2]),
    "unknown setting": lambda name: configured(name, "no.such.setting", "1"),
    "no number": lambda name: configured(name, "retention.ms", "many"),
    "number out of range": lambda name: configured(name, "segment.bytes", "1"),
    "no such policy": lambda name: configured(name, "cleanup.policy", "burn"),
    "null value": lambda name: configured(name, "retention.ms", None),
    "too many replicas to be in sync": lambda name: configured(name, "min.insync.replicas", "0"),
    "bad list": lambda name: configured(name, "leader.replication.throttled.replicas", "nonsense"),
    "no such compression": lambda name: configured(name, "compression.type", "rar"),
    "compression level": lambda name: configured(name, "compression.gzip.level", "99"),
    "no such timestamp": lambda name: configured(name, "message.timestamp.type", "Sometime"),
    "retention below -1": lambda name: configured(name, "retention.ms", "-2"),
    "message format": lambda name: configured(name, "message.format.version", "2.8"),
}


def new_topics(stage: Stage) -> None:
    for version in create_topics.VERSIONS:
        for line, make in GOOD.items():
            topic = make(f"new-v{version}-{line.replace(' ', '-')}")
            stage.ask(
                f"v{version} {line}", create_topics, version, CreateTopicsRequest([topic], 30_000)
            )
        defaults = CreatableTopic(f"new-v{version}-defaults", -1, -1)
        request = CreateTopicsRequest([defaults], 30_000)
        stage.ask(f"v{version} defaults", create_topics, version, request)


def refused_topics(stage: Stage) -> None:
    for version in create_topics.VERSIONS:
        for line, make in BAD.items():
            topic = make(f"refused-v{version}-{line.replace(' ', '-').replace(chr(39), '')}")
            stage.ask(
                f"v{version} {line}", create_topics, version, CreateTopicsRequest([topic], 30_000)
            )


def topics_that_exist(stage: Stage) -> None:
    stage.topic("exists.here")
    for version in create_topics.VERSIONS:

        def ask(line: str, *names: str, dry: bool = False, version: int = version) -> None:
            topics = [CreatableTopic(name, 1, 1) for name in names]
            request = CreateTopicsRequest(topics, 30_000, dry)
            stage.ask(f"v{version} {line}", create_topics, version, request)

        ask("exists", "exists.here")
        ask("collides", "exists_here")
        ask("twice in one request", f"twice-{version}", f"twice-{version}")
        ask("only validated", f"validated-{version}", dry=True)
        ask("only validated, exists", "exists.here", dry=True)
        ask("nothing")
        ask("one good, one bad", f"one-good-{version}", "exists.here")


def deleted_topics(stage: Stage) -> None:
    for version in delete_topics.VERSIONS:
        names = [f"deleted-v{version}-{letter}" for letter in "abc"]
        topics = [stage.topic(name) for name in names]

        def ask(
            line: str, names: list[str], states: list[DeleteTopicState], version: int = version
        ) -> None:
            request = DeleteTopicsRequest(states, names, 30_000)
            stage.ask(f"v{version} {line}", delete_topics, version, request)

        if version < 6:
            ask("one and an unknown one", [names[0], "never-was"], [])
            ask("twice", [names[1], names[1]], [])
            ask("nothing", [], [])
            ask("bad name", ["bad name", ""], [])
            continue
        ask("by name", [], [DeleteTopicState(names[0]), DeleteTopicState("never-was")])
        ask("by id", [], [DeleteTopicState(None, topics[1].id)])
        ask("by unknown id", [], [DeleteTopicState(None, b"\x12" * 16)])
        ask("by both", [], [DeleteTopicState(names[2], topics[2].id)])
        ask("by neither", [], [DeleteTopicState(None)])
        ask("twice", [], [DeleteTopicState(names[2]), DeleteTopicState(names[2])])
        twice = [DeleteTopicState(None, topics[2].id), DeleteTopicState(names[2])]
        ask("by name and by id", [], twice)


STORIES = (new_topics, refused_topics, topics_that_exist, deleted_topics)
