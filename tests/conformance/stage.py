"""The stage on which a story is played: one broker, and everything it answered.

A story is a function `story(stage)`. It is played once on Apache Kafka and once on Headrace; each
`ask` is a line of the script under a name of its own, and its answer is kept for the comparison.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import (
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    list_offsets,
    metadata,
    produce,
)
from headrace.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.protocol.primitives import Message
from tests import patience
from tests.conformance.plain import Surroundings, plain
from tests.conformance.wire import Connection, ConnectionClosed, NoAnswer
from tests.interop.brokers import Node

NEWEST_METADATA = 13
TOPICS = 2  # the kind of resource
LAST = "changed-last"  # a topic that no story is about
Story = Callable[["Stage"], None]
_changes = itertools.count(1_000_000)


@dataclass(slots=True)
class Topic:
    name: str
    id: bytes


@dataclass(slots=True)
class Stage:
    """One broker as a story sees it."""

    node: Node
    replicas: tuple[int, ...] = ()  # of each partition of a new topic; none are named for one node
    answers: dict[str, Any] = field(default_factory=dict)
    about: Surroundings = field(init=False)
    _connection: Connection | None = None

    def __post_init__(self) -> None:
        self.about = Surroundings(self.node)
        described = self.metadata(None)
        self.about.cluster_id = described.cluster_id
        for topic in described.topics:
            self.about.topic_ids[topic.topic_id] = topic.name

    # -- the script ----------------------------------------------------------------------------

    def ask(self, line: str, api: ModuleType, version: int, request: Message) -> Any:
        """Send one request and keep its answer under the name of this line."""
        try:
            answer = self.connection.ask(api, version, request)
        except (ConnectionClosed, NoAnswer) as silence:
            self.drop()
            self.keep(line, type(silence).__name__)
            return None
        self.keep(line, answer)
        return answer

    def keep(self, line: str, answer: Any) -> None:
        assert line not in self.answers, f"two lines are called {line!r}"
        self.answers[line] = plain(answer, self.about)

    def send_raw(
        self, line: str, frame: bytes, *, length: int | None = None, words: bool = True
    ) -> None:
        """Bytes that are no request, and whether they are answered; `words`: with which bytes."""
        connection = Connection(self.node.port, timeout_s=30)
        try:
            prefix = (len(frame) if length is None else length).to_bytes(4, "big", signed=True)
            connection.socket.sendall(prefix + frame)
            answer = connection.receive_frame()[4:]
            self.keep(line, answer if words else "answered")
        except (ConnectionClosed, NoAnswer) as silence:
            self.keep(line, type(silence).__name__)
        finally:
            connection.close()

    # -- setting the scene (nothing of this is compared) -----------------------------------------

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.node.port)
        return self._connection

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def topic(
        self, name: str, *, partitions: int = 1, config: dict[str, str] | None = None
    ) -> Topic:
        """A new topic, ready to be used."""
        # The made-up times of the records would otherwise fall to retention.
        settings = {"retention.ms": "-1"} | (config or {})
        configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
        wanted = CreatableTopic(name, partitions, 1, [], configs)
        if self.replicas:
            wanted.num_partitions = wanted.replication_factor = -1
            wanted.assignments = [
                CreatableReplicaAssignment(index, list(self.replicas))
                for index in range(partitions)
            ]
        answer: Any = self.connection.ask(create_topics, 7, CreateTopicsRequest([wanted], 30_000))
        assert answer.topics[0].error_code == 0, answer
        topic_id = answer.topics[0].topic_id
        self.about.topic_ids[topic_id] = name
        self.until(lambda: self.is_ready(name, partitions))
        return Topic(name, topic_id)

    def is_ready(self, name: str, partitions: int) -> bool:
        """Apache's broker knows a partition before it has opened its log, hence the second look."""
        found = self.find(name)
        if found.error_code != 0 or len(found.partitions) != partitions:
            return False
        wanted = [ListOffsetsPartition(index, -1, -2) for index in range(partitions)]
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, wanted)])
        answer: Any = self.connection.ask(list_offsets, 7, request)
        return all(one.error_code == 0 for one in answer.topics[0].partitions)

    def learn(self, name: str) -> Topic:
        """The id of a topic that a request created."""
        found = self.find(name)
        self.about.topic_ids[found.topic_id] = name
        return Topic(name, found.topic_id)

    def find(self, name: str) -> Any:
        return self.metadata([name]).topics[0]

    def metadata(self, names: list[str] | None) -> Any:
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        return self.connection.ask(metadata, NEWEST_METADATA, MetadataRequest(wanted, False))

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(name)], [], 30_000)
        self.connection.ask(delete_topics, 6, request)
        self.until(lambda: self.find(name).error_code != 0)
        self.publish()

    def publish(self) -> None:
        """Until every part of the broker has heard of all that was changed before.

        Apache Kafka shows a change before it has told its logs, quotas and coordinators of it; but
        it tells them of one change after the other, so what it shows now they have all heard.
        """
        if self.find(LAST).error_code != 0:
            self.topic(LAST)
        value = str(next(_changes))
        change = AlterConfigsResource(TOPICS, LAST, [AlterableConfig("flush.ms", 0, value)])
        self.connection.ask(incremental_alter_configs, 1, IncrementalAlterConfigsRequest([change]))
        asked = DescribeConfigsRequest([DescribeConfigsResource(TOPICS, LAST, ["flush.ms"])])

        def is_shown() -> bool:
            answer: Any = self.connection.ask(describe_configs, 4, asked)
            return bool(answer.results[0].configs[0].value == value)

        self.until(is_shown)

    def produce(self, topic: Topic, *batches: bytes, partition: int = 0) -> int:
        """Batches that are taken; the offset of the last one."""
        base = -1
        for batch in batches:
            data = TopicProduceData("", topic.id, [PartitionProduceData(partition, batch)])
            answer: Any = self.connection.ask(produce, 13, ProduceRequest(None, -1, 30_000, [data]))
            result = answer.responses[0].partition_responses[0]
            assert result.error_code == 0, result
            base = result.base_offset
        return base

    def until(self, is_so: Callable[[], bool], within_s: float = 180.0) -> None:
        """Wait for what a cluster does after it has answered."""
        patience.until(is_so, "it never came to be", within_s=within_s)


def play(
    story: Story, node: Node, replicas: tuple[int, ...] = ()
) -> tuple[dict[str, Any], Exception | None]:
    """All answers of one story by the names of their lines, and what stopped it early."""
    stage = Stage(node, replicas)
    try:
        story(stage)
    except (AssertionError, OSError, ConnectionClosed, NoAnswer, MalformedMessage) as stopped:
        return stage.answers, stopped
    finally:
        stage.drop()
    return stage.answers, None
