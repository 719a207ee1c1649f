"""Records go in, records come out: acks, waiting, limits, durability, restarts."""

import errno

import pytest

from headrace.node.process.folders.real_disk import RealFile
from headrace.node.serving.api import ClosesConnection
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import fetch, list_offsets, metadata, produce
from tests.unit.node.broker.rig import (
    START_MS,
    WAITS,
    Rig,
    build,
    fetch_request,
    only_partition,
    values_in,
)


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path / "data")


def test_what_was_produced_is_fetched(rig):
    rig.create("orders")
    assert rig.produce("orders", "a", "b").base_offset == 0
    assert rig.produce("orders", "c").base_offset == 2
    found = rig.fetch("orders")
    assert found.high_watermark == 3
    assert values_in(found.records) == [b"a", b"b", b"c"]
    assert values_in(rig.fetch("orders", 2).records) == [b"c"]
    assert values_in(rig.fetch("orders", 3).records) == []


def test_a_partition_that_refuses_does_not_touch_its_neighbours(rig):
    rig.create("orders", partitions=2)
    parts = [produce.PartitionProduceData(index, build(["x"], 0)) for index in (0, 7, 1)]
    data = [produce.TopicProduceData("orders", bytes(16), parts)]
    answer = rig.ask(produce, produce.ProduceRequest(None, 1, 1000, data), version=9)
    codes = {part.index: part.error_code for part in answer.responses[0].partition_responses}
    assert codes == {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1: 0}


def test_unknown_topics_are_refused_by_name_and_by_id(rig):
    assert rig.produce("nowhere", "x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    data = [
        produce.TopicProduceData("", b"i" * 16, [produce.PartitionProduceData(0, build(["x"], 0))])
    ]
    answer = rig.ask(produce, produce.ProduceRequest(None, 1, 1000, data), version=13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_acks_none_is_not_answered_and_a_refusal_ends_the_connection(rig):
    rig.create("orders")
    assert rig.produce("orders", "a", acks=0) is None
    assert rig.fetch("orders").high_watermark == 1
    with pytest.raises(ClosesConnection, match="acks=0"):
        rig.produce("nowhere", "a", acks=0)


def test_acks_of_two_is_refused_and_nothing_is_written(rig):
    rig.create("orders")
    assert rig.produce("orders", "a", acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert rig.fetch("orders").high_watermark == 0


def test_a_minimum_above_the_number_of_replicas_means_all_of_them(rig):
    """As Apache Kafka 4.3.1 was seen to do: a topic with one replica takes acks=all."""
    rig.create("orders", min_insync_replicas=2)
    assert rig.produce("orders", "a").base_offset == 0


def test_a_fetch_waits_for_records(rig):
    rig.create("orders")
    reader = rig.connect()
    assert rig.fetch("orders", max_wait_ms=500, session=reader) == WAITS
    rig.produce("orders", "now")
    found = only_partition(rig.answer_on(reader, fetch, 12))
    assert values_in(found.records) == [b"now"]


def test_a_fetch_waits_no_longer_than_it_said(rig):
    rig.create("orders")
    reader = rig.connect()
    assert rig.fetch("orders", max_wait_ms=500, session=reader) == WAITS
    rig.advance(499)
    assert not reader.outbox
    rig.advance(1)
    assert values_in(only_partition(rig.answer_on(reader, fetch, 12)).records) == []


def test_a_fetch_waits_until_there_is_as_much_as_it_wants(rig):
    rig.create("orders")
    reader = rig.connect()
    assert rig.fetch("orders", max_wait_ms=500, min_bytes=150, session=reader) == WAITS
    rig.produce("orders", "one")
    assert not reader.outbox
    rig.produce("orders", "two")
    rig.produce("orders", "three")
    found = only_partition(rig.answer_on(reader, fetch, 12))
    assert values_in(found.records)[:2] == [b"one", b"two"]


def test_a_batch_larger_than_every_limit_is_still_returned(rig):
    rig.create("orders")
    rig.produce("orders", "x" * 10_000)
    found = rig.fetch("orders", max_bytes=100)
    assert values_in(found.records) == [b"x" * 10_000]


def test_outside_the_log(rig):
    rig.create("orders")
    rig.produce("orders", "a")
    assert rig.fetch("orders", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.fetch("orders", -1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nobody_may_pose_as_a_follower(rig):
    rig.create("orders")
    rig.produce("orders", "a")
    request = fetch_request("orders", 0)
    request.replica_id = 1
    found = only_partition(rig.ask(fetch, request, version=12))
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert not found.records


def test_a_fetch_of_a_topic_that_goes_away_is_answered(rig):
    rig.create("orders")
    reader = rig.connect()
    assert rig.fetch("orders", max_wait_ms=60_000, session=reader) == WAITS
    rig.delete("orders")
    found = only_partition(rig.answer_on(reader, fetch, 12))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_leaves_no_files_behind(rig):
    rig.create("orders", file_delete_delay_ms=1_000)
    rig.produce("orders", "a")
    rig.delete("orders")
    assert next(path.name for path in rig.folder.glob("orders-*")).endswith("-delete")
    rig.advance(2_000)
    assert not list(rig.folder.glob("orders-*"))


def test_a_topic_made_again_under_its_name_is_empty(rig):
    first = rig.create("orders")
    rig.produce("orders", "old")
    rig.delete("orders")
    assert rig.create("orders") != first
    assert rig.fetch("orders").high_watermark == 0


def test_everything_is_there_after_a_restart(tmp_path):
    rig = Rig(tmp_path / "data")
    topic_id = rig.create("orders", partitions=2, retention_ms=5_000_000)
    rig.produce("orders", "a", "b", partition=1)
    rig.stop()
    again = Rig(tmp_path / "data")
    assert values_in(again.fetch("orders", partition=1).records) == [b"a", b"b"]
    assert again.produce("orders", "c", partition=1).base_offset == 2
    described = again.ask(metadata, metadata.MetadataRequest(None))
    assert [(t.name, t.topic_id, len(t.partitions)) for t in described.topics] == [
        ("orders", topic_id, 2)
    ]
    [leader, _] = again.node.broker.topics.by_name["orders"].replicas
    assert leader.log.settings.retention_ms == 5_000_000


def test_everything_acknowledged_is_there_after_a_crash(tmp_path):
    rig = Rig(tmp_path / "data")
    rig.create("orders")
    for number in range(100):
        rig.produce("orders", str(number))
    again = Rig(tmp_path / "data")  # the first one was never stopped
    assert values_in(again.fetch("orders").records) == [str(n).encode() for n in range(100)]


def test_with_durability_disk_nobody_sees_a_record_before_the_disk_has_it(tmp_path):
    rig = Rig(tmp_path / "data", headrace_durability="disk")
    rig.create("orders")
    rig.flushes_wait = True
    writers = [rig.connect() for _ in range(3)]
    reader = rig.connect()
    for number, writer in enumerate(writers):
        assert rig.produce("orders", str(number), session=writer) == WAITS
    assert rig.fetch("orders", max_wait_ms=500, session=reader) == WAITS
    assert len(rig.background) == 1  # one flush now; the others share the next
    rig.run_background()
    rig.run_background()
    for number, writer in enumerate(writers):
        answer = rig.answer_on(writer, produce, 12)
        assert answer.responses[0].partition_responses[0].base_offset == number
    assert values_in(only_partition(rig.answer_on(reader, fetch, 12)).records)


def test_with_durability_disk_a_flush_that_takes_too_long_is_a_timeout(tmp_path):
    rig = Rig(tmp_path / "data", headrace_durability="disk")
    rig.create("orders")
    rig.flushes_wait = True
    writer = rig.connect()
    assert rig.produce("orders", "a", session=writer) == WAITS
    rig.advance(1_000)
    [part] = rig.answer_on(writer, produce, 12).responses[0].partition_responses
    assert part.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_acks_one_does_not_wait_for_the_disk(tmp_path):
    rig = Rig(tmp_path / "data", headrace_durability="disk")
    rig.create("orders")
    rig.flushes_wait = True
    assert rig.produce("orders", "a", acks=1).base_offset == 0


def offsets(rig, time, **options):
    request = list_offsets.ListOffsetsRequest(-1)
    part = list_offsets.ListOffsetsPartition(0)
    part.timestamp = time
    request.topics = [list_offsets.ListOffsetsTopic("orders", [part])]
    return rig.ask(list_offsets, request, **options).topics[0].partitions[0]


def test_offsets_by_place_and_by_time(rig):
    rig.create("orders")
    times = []
    for value in "abc":
        times.append(rig.now.wall_ms)
        rig.produce("orders", value)
        rig.advance(10)
    assert offsets(rig, -2).offset == 0
    assert offsets(rig, -1).offset == 3
    assert (offsets(rig, -3).offset, offsets(rig, -3).timestamp) == (2, times[2])
    assert offsets(rig, times[1]).offset == 1
    assert (offsets(rig, times[1] + 1).offset, offsets(rig, times[1] + 1).timestamp) == (
        2,
        times[2],
    )
    assert offsets(rig, times[2] + 1).offset == -1
    assert offsets(rig, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_old_records_go_with_their_segments(rig):
    rig.create("orders", retention_ms=400_000, segment_ms=10_000)
    rig.produce("orders", "old")
    rig.advance(200_000)
    rig.produce("orders", "new")
    rig.advance(300_000)  # the check comes every five minutes
    assert offsets(rig, -2).offset == 1
    assert values_in(rig.fetch("orders", 1).records) == [b"new"]


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_all_topics_are_told_as_each_by_its_name_and_as_they_are_now(rig, version):
    def everything():
        nothing = [] if version == 0 else None
        return rig.ask(metadata, metadata.MetadataRequest(nothing), version=version)

    rig.create("orders", partitions=3)
    assert [topic.name for topic in everything().topics] == ["orders"]
    rig.create("bills")
    told = everything()
    assert everything() == told
    wanted = [metadata.MetadataRequestTopic(bytes(16), name) for name in ("orders", "bills")]
    request = metadata.MetadataRequest(wanted, False)
    assert rig.ask(metadata, request, version=version) == told
    rig.delete("orders")
    assert [topic.name for topic in everything().topics] == ["bills"]


def test_unknown_topics_are_made_when_a_client_asks_for_them(rig):
    wanted = [metadata.MetadataRequestTopic(bytes(16), "fresh")]
    answer = rig.ask(metadata, metadata.MetadataRequest(wanted, True))
    assert answer.topics[0].error_code == 0
    assert len(answer.topics[0].partitions) == 1
    assert rig.produce("fresh", "a").base_offset == 0


@pytest.mark.parametrize(
    "name",
    ["headrace.delay.topics", "headrace.audit", "headrace-http-keys", "headrace-http-keys.x"],
)
def test_topics_of_our_services_are_not_made_by_asking_for_them(rig, name):
    """Whoever asks first would make them with one partition, and without their settings."""
    wanted = [metadata.MetadataRequestTopic(bytes(16), name)]
    for _ in range(2):
        [found] = rig.ask(metadata, metadata.MetadataRequest(wanted, True)).topics
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not rig.node.broker.image.topics


def test_unknown_topics_are_not_made_if_client_or_broker_says_no(tmp_path):
    rig = Rig(tmp_path / "data", auto_create_topics_enable="false")
    wanted = [metadata.MetadataRequestTopic(bytes(16), "fresh")]
    for allowed in (True, False):
        answer = rig.ask(metadata, metadata.MetadataRequest(wanted, allowed))
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_name_that_is_no_topic_name_is_not_made(rig):
    wanted = [metadata.MetadataRequestTopic(bytes(16), "no/way")]
    answer = rig.ask(metadata, metadata.MetadataRequest(wanted, True))
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("size", [10, 10_000, 100_000])
def test_a_full_disk_refuses_and_forgets_and_goes_on_when_there_is_room(
    rig, monkeypatch, caplog, size
):
    def no_space(self, data):
        raise OSError(28, "No space left on device")

    rig.create("orders")
    rig.produce("orders", "before")
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        for _ in range(2):
            refused = rig.produce("orders", "x" * size)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left on device" in refused.error_message
        assert caplog.text.count("No space left on device") == 1
    assert values_in(rig.fetch("orders").records) == [b"before"]
    assert rig.produce("orders", "after").base_offset == 1
    assert values_in(rig.fetch("orders").records) == [b"before", b"after"]


def test_a_disk_that_cannot_be_read_is_told_by_a_search_in_that_partition_alone(
    tmp_path, monkeypatch, caplog
):
    rig = Rig(tmp_path)
    rig.create("orders", 2)
    for partition in (0, 1):
        rig.produce("orders", "a", "b", partition=partition)
    bad = rig.node.broker.topics.leader("orders", 0).log

    def offset_for_time(self, time, budget=None):
        if self is bad:
            raise OSError(errno.EIO, "Input/output error")
        return original(self, time, budget)

    original = type(bad).offset_for_time
    monkeypatch.setattr(type(bad), "offset_for_time", offset_for_time)
    parts = [list_offsets.ListOffsetsPartition(index, -1, START_MS) for index in (0, 1)]
    request = list_offsets.ListOffsetsRequest(
        -1, 0, [list_offsets.ListOffsetsTopic("orders", parts)]
    )
    answers = rig.ask(list_offsets, request).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert answers[1].offset == 0
    assert "Input/output error" in caplog.text and "Traceback" not in caplog.text
