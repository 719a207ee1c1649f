"""DeleteRecords 0-2 and OffsetForLeaderEpoch 2-4."""

from __future__ import annotations

from headrace.wire.protocol.messages import delete_records, fetch, offset_for_leader_epoch
from headrace.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import fetch_request, fetch_topic, from_offset


def deleted_records(stage: Stage) -> None:
    compacted = stage.topic("deleted-compacted", config={"cleanup.policy": "compact"})
    stage.produce(compacted, build(R()))
    for version in delete_records.VERSIONS:
        topic = stage.topic(f"deleted-records-v{version}", partitions=2)
        stage.produce(topic, build(R(), R(), R()), build(R(), R()), build(R()))

        def ask(line: str, name: str, *cuts: tuple[int, int], version: int = version) -> None:
            partitions = [DeleteRecordsPartition(*cut) for cut in cuts]
            request = DeleteRecordsRequest([DeleteRecordsTopic(name, partitions)], 10_000)
            stage.ask(f"v{version} {line}", delete_records, version, request)

        def read(line: str, offset: int, topic: Topic = topic, version: int = version) -> None:
            request = fetch_request(fetch_topic(13, topic, from_offset(offset)))
            stage.ask(f"v{version} {line}", fetch, 13, request)

        ask("nothing before zero", topic.name, (0, 0))
        ask("inside a batch", topic.name, (0, 1))
        read("read before it", 0)
        read("read at it", 1)
        ask("at a batch", topic.name, (0, 3), (1, 0))
        ask("before the start", topic.name, (0, 2))
        ask("behind the end", topic.name, (0, 7))
        ask("minus two", topic.name, (0, -2))
        ask("unknown partition", topic.name, (9, 0))
        ask("unknown topic", "never-was", (0, 0))
        ask("bad name", "bad name", (0, 0))
        ask("compacted", compacted.name, (0, 1))
        ask("all", topic.name, (0, -1), (1, -1))
        read("read at the end", 6)
        ask("all once more", topic.name, (0, 6))


def ends_of_epochs(stage: Stage) -> None:
    topic = stage.topic("ends-of-epochs", partitions=2)
    stage.produce(topic, build(R(), R()))
    for version in offset_for_leader_epoch.VERSIONS:

        def ask(
            line: str,
            *asked: OffsetForLeaderPartition,
            name: str = topic.name,
            replica: int = -1,
            version: int = version,
        ) -> None:
            request = OffsetForLeaderEpochRequest(
                replica, [OffsetForLeaderTopic(name, list(asked))]
            )
            stage.ask(f"v{version} {line}", offset_for_leader_epoch, version, request)

        ask("epoch 0", OffsetForLeaderPartition(0, -1, 0))
        ask("epoch 0, right leader epoch", OffsetForLeaderPartition(0, 0, 0))
        ask("later epoch", OffsetForLeaderPartition(0, -1, 5))
        ask("negative epoch", OffsetForLeaderPartition(0, -1, -1))
        ask("empty partition", OffsetForLeaderPartition(1, -1, 0))
        ask("leader epoch of the future", OffsetForLeaderPartition(0, 9, 0))
        ask("unknown partition", OffsetForLeaderPartition(9, -1, 0))
        ask("unknown topic", OffsetForLeaderPartition(0, -1, 0), name="never-was")
        ask("as a debugging consumer", OffsetForLeaderPartition(0, -1, 0), replica=-2)


STORIES = (deleted_records, ends_of_epochs)
