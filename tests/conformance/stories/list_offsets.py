"""ListOffsets 1-11: the ends of a log, special times, and real ones."""

from __future__ import annotations

from headrace.wire.protocol.messages import delete_records, list_offsets
from headrace.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage

BASE = 1_700_000_000_000
SPECIAL = (-1, -2, -3, -4, -5, -6, -7)


def asked(
    name: str, partition: int, time: int, *, leader_epoch: int = -1, isolation: int = 0
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition, leader_epoch, time)
    return ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(name, [wanted])], 10_000)


def times(stage: Stage) -> None:
    topic = stage.topic("listed", partitions=2)
    stage.produce(
        topic,
        build(R(time_delta=0), R(time_delta=10), R(time_delta=20), base_timestamp=BASE),
        build(R(time_delta=0), R(time_delta=30), R(time_delta=5), base_timestamp=BASE + 100),
        build(R(time_delta=1), R(time_delta=2), base_timestamp=BASE + 50, codec="zstd"),
    )
    moments = (0, 5, 10, 20, 21, 100, 101, 106, 130, 131)
    for version in list_offsets.VERSIONS:
        for time in (*SPECIAL, 0, *(BASE + moment for moment in moments), 2**62):
            request = asked("listed", 0, time)
            stage.ask(f"v{version} time {time}", list_offsets, version, request)
        for time in (-1, -2, -3, -4, 0, BASE):
            request = asked("listed", 1, time)
            stage.ask(f"v{version} empty, time {time}", list_offsets, version, request)
        if version >= 2:
            for time in (-1, -3, BASE):
                request = asked("listed", 0, time, isolation=1)
                stage.ask(f"v{version} committed, time {time}", list_offsets, version, request)


def a_log_that_lost_its_start(stage: Stage) -> None:
    topic = stage.topic("listed-cut")
    stage.produce(topic, *(build(R(), base_timestamp=BASE + number) for number in range(5)))
    cut = DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(0, 3)])
    stage.connection.ask(delete_records, 2, DeleteRecordsRequest([cut], 10_000))
    for version in list_offsets.VERSIONS:
        for time in (-1, -2, -4, 0, BASE, BASE + 2, BASE + 4, BASE + 5):
            request = asked(topic.name, 0, time)
            stage.ask(f"v{version} time {time}", list_offsets, version, request)


def refusals(stage: Stage) -> None:
    stage.topic("listed-refused", partitions=2)
    for version in list_offsets.VERSIONS:

        def ask(line: str, request: ListOffsetsRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", list_offsets, version, request)

        ask("unknown topic", asked("never-was", 0, -1))
        ask("bad name", asked("bad name", 0, -1))
        ask("unknown partition", asked("listed-refused", 9, -1))
        ask("nothing", ListOffsetsRequest(-1))
        twice = [ListOffsetsPartition(0, -1, -1), ListOffsetsPartition(0, -1, -2)]
        ask("twice", ListOffsetsRequest(-1, 0, [ListOffsetsTopic("listed-refused", twice)]))
        if version >= 4:
            ask("leader epoch 0", asked("listed-refused", 0, -1, leader_epoch=0))
            ask("leader epoch 9", asked("listed-refused", 0, -1, leader_epoch=9))
        debugging = asked("listed-refused", 0, -1)
        debugging.replica_id = -2
        ask("as a debugging consumer", debugging)
        follower = asked("listed-refused", 0, -1)
        follower.replica_id = 5
        ask("as a follower", follower)


STORIES = (times, a_log_that_lost_its_start, refusals)
