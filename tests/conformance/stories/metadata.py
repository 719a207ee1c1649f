"""Metadata 0-13: all topics, none, some, by id, unknown ones, and creation by asking."""

from __future__ import annotations

from headrace.wire.protocol.messages import metadata
from headrace.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.stage import Stage

UNKNOWN_ID = b"\x11" * 16


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def topics_by_name(stage: Stage) -> None:
    stage.topic("metadata-a", partitions=3)
    stage.topic("metadata-b")
    for version in metadata.VERSIONS:

        def ask(line: str, request: MetadataRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", metadata, version, request)

        ask("two", MetadataRequest(named("metadata-a", "metadata-b"), False))
        ask("twice the same", MetadataRequest(named("metadata-a", "metadata-a"), False))
        if version >= 1:
            ask("none", MetadataRequest([], False))
        if version >= 4:
            ask("unknown", MetadataRequest(named("not-there", "metadata-a"), False))
            ask("bad names", MetadataRequest(named("", "bad name", "a" * 250, "."), False))
        if version >= 8:
            ask(
                "operations",
                MetadataRequest(named("metadata-a", "nope"), False, version < 11, True),
            )


def all_topics(stage: Stage) -> None:
    """Version 0 means all by an empty list, later ones by null."""
    stage.topic("metadata-all")
    for version in metadata.VERSIONS:
        request = MetadataRequest([] if version == 0 else None, True)
        answer = stage.ask(f"v{version}", metadata, version, request)
        found = [topic for topic in answer.topics if topic.name == "metadata-all"]
        stage.answers[f"v{version}"]["topics"] = len(found)


def topics_by_id(stage: Stage) -> None:
    topic = stage.topic("metadata-by-id")
    for version in range(10, 14):
        known = MetadataRequestTopic(topic.id, None)
        unknown = MetadataRequestTopic(UNKNOWN_ID, None)
        both = MetadataRequestTopic(topic.id, "metadata-by-id")
        wrong = MetadataRequestTopic(topic.id, "another-name")
        for line, asked in [
            ("known", [known]),
            ("unknown", [unknown]),
            ("both", [both]),
            ("wrong", [wrong]),
            ("mixed", [known, unknown]),
        ]:
            stage.ask(f"v{version} {line}", metadata, version, MetadataRequest(asked, False))
        mixture = MetadataRequest([known, *named("metadata-by-id")], False)
        stage.ask(f"v{version} id and name", metadata, version, mixture)


def null_names(stage: Stage) -> None:
    for version in range(10, 14):
        request = MetadataRequest([MetadataRequestTopic(name=None)], False)
        stage.ask(f"v{version}", metadata, version, request)


def asking_creates(stage: Stage) -> None:
    for version in metadata.VERSIONS:
        name = f"asked-for-{version}"
        stage.ask(f"v{version} first", metadata, version, MetadataRequest(named(name), True))
        stage.until(lambda name=name: stage.is_ready(name, 1))  # type: ignore[misc]
        stage.learn(name)
        stage.ask(f"v{version} then", metadata, version, MetadataRequest(named(name), True))
    for number, name in enumerate(["", ".", "bad name", "a" * 250, "__cluster_metadata"]):
        stage.ask(f"bad {number}", metadata, 12, MetadataRequest(named(name), True))


STORIES = (topics_by_name, all_topics, topics_by_id, null_names, asking_creates)
