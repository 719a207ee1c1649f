"""Records go in, records come out: acks, waiting, limits, durability, restarts."""

import errno

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import fetch, list_offsets, metadata, produce
from headrace.server.real_disk import RealFile
from headrace.serving.api import Refused
from tests.unit.broker.bench import (
    PARKED,
    START_MS,
    Bench,
    build,
    fetch_request,
    only_partition,
    values_in,
)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "data")


def test_what_was_produced_is_fetched(bench):
    bench.create("orders")
    assert bench.produce("orders", "a", "b").base_offset == 0
    assert bench.produce("orders", "c").base_offset == 2
    found = bench.fetch("orders")
    assert found.high_watermark == 3
    assert values_in(found.records) == [b"a", b"b", b"c"]
    assert values_in(bench.fetch("orders", 2).records) == [b"c"]
    assert values_in(bench.fetch("orders", 3).records) == []


def test_a_partition_that_refuses_does_not_touch_its_neighbours(bench):
    bench.create("orders", partitions=2)
    parts = [produce.PartitionProduceData(index, build(["x"], 0)) for index in (0, 7, 1)]
    data = [produce.TopicProduceData("orders", bytes(16), parts)]
    answer = bench.ask(produce, produce.ProduceRequest(None, 1, 1000, data), version=9)
    codes = {part.index: part.error_code for part in answer.responses[0].partition_responses}
    assert codes == {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1: 0}


def test_unknown_topics_are_refused_by_name_and_by_id(bench):
    assert bench.produce("nowhere", "x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    data = [
        produce.TopicProduceData("", b"i" * 16, [produce.PartitionProduceData(0, build(["x"], 0))])
    ]
    answer = bench.ask(produce, produce.ProduceRequest(None, 1, 1000, data), version=13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_acks_none_is_not_answered_and_a_refusal_ends_the_connection(bench):
    bench.create("orders")
    assert bench.produce("orders", "a", acks=0) is None
    assert bench.fetch("orders").high_watermark == 1
    with pytest.raises(Refused, match="acks=0"):
        bench.produce("nowhere", "a", acks=0)


def test_acks_of_two_is_refused_and_nothing_is_written(bench):
    bench.create("orders")
    assert bench.produce("orders", "a", acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert bench.fetch("orders").high_watermark == 0


def test_a_minimum_above_the_number_of_replicas_means_all_of_them(bench):
    """As Apache Kafka 4.3.1 was seen to do: a topic with one replica takes acks=all."""
    bench.create("orders", min_insync_replicas=2)
    assert bench.produce("orders", "a").base_offset == 0


def test_a_fetch_waits_for_records(bench):
    bench.create("orders")
    reader = bench.connect()
    assert bench.fetch("orders", max_wait_ms=500, session=reader) == PARKED
    bench.produce("orders", "now")
    found = only_partition(bench.answer_on(reader, fetch, 12))
    assert values_in(found.records) == [b"now"]


def test_a_fetch_waits_no_longer_than_it_said(bench):
    bench.create("orders")
    reader = bench.connect()
    assert bench.fetch("orders", max_wait_ms=500, session=reader) == PARKED
    bench.advance(499)
    assert not reader.outbox
    bench.advance(1)
    assert values_in(only_partition(bench.answer_on(reader, fetch, 12)).records) == []


def test_a_fetch_waits_until_there_is_as_much_as_it_wants(bench):
    bench.create("orders")
    reader = bench.connect()
    assert bench.fetch("orders", max_wait_ms=500, min_bytes=150, session=reader) == PARKED
    bench.produce("orders", "one")
    assert not reader.outbox
    bench.produce("orders", "two")
    bench.produce("orders", "three")
    found = only_partition(bench.answer_on(reader, fetch, 12))
    assert values_in(found.records)[:2] == [b"one", b"two"]


def test_a_batch_larger_than_every_limit_is_still_returned(bench):
    bench.create("orders")
    bench.produce("orders", "x" * 10_000)
    found = bench.fetch("orders", max_bytes=100)
    assert values_in(found.records) == [b"x" * 10_000]


def test_outside_the_log(bench):
    bench.create("orders")
    bench.produce("orders", "a")
    assert bench.fetch("orders", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bench.fetch("orders", -1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nobody_may_pose_as_a_follower(bench):
    bench.create("orders")
    bench.produce("orders", "a")
    request = fetch_request("orders", 0)
    request.replica_id = 1
    found = only_partition(bench.ask(fetch, request, version=12))
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert not found.records


def test_a_fetch_of_a_topic_that_goes_away_is_answered(bench):
    bench.create("orders")
    reader = bench.connect()
    assert bench.fetch("orders", max_wait_ms=60_000, session=reader) == PARKED
    bench.delete("orders")
    found = only_partition(bench.answer_on(reader, fetch, 12))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_leaves_no_files_behind(bench):
    bench.create("orders", file_delete_delay_ms=1_000)
    bench.produce("orders", "a")
    bench.delete("orders")
    assert [path.name for path in bench.folder.glob("orders-*")][0].endswith("-delete")
    bench.advance(2_000)
    assert not list(bench.folder.glob("orders-*"))


def test_a_topic_made_again_under_its_name_is_empty(bench):
    first = bench.create("orders")
    bench.produce("orders", "old")
    bench.delete("orders")
    assert bench.create("orders") != first
    assert bench.fetch("orders").high_watermark == 0


def test_everything_is_there_after_a_restart(tmp_path):
    bench = Bench(tmp_path / "data")
    topic_id = bench.create("orders", partitions=2, retention_ms=5_000_000)
    bench.produce("orders", "a", "b", partition=1)
    bench.stop()
    again = Bench(tmp_path / "data")
    assert values_in(again.fetch("orders", partition=1).records) == [b"a", b"b"]
    assert again.produce("orders", "c", partition=1).base_offset == 2
    described = again.ask(metadata, metadata.MetadataRequest(None))
    assert [(t.name, t.topic_id, len(t.partitions)) for t in described.topics] == [
        ("orders", topic_id, 2)
    ]
    [leader, _] = again.node.broker.topics.by_name["orders"].replicas
    assert leader.log.settings.retention_ms == 5_000_000


def test_everything_acknowledged_is_there_after_a_crash(tmp_path):
    bench = Bench(tmp_path / "data")
    bench.create("orders")
    for number in range(100):
        bench.produce("orders", str(number))
    again = Bench(tmp_path / "data")  # the first one was never stopped
    assert values_in(again.fetch("orders").records) == [str(n).encode() for n in range(100)]


def test_with_durability_disk_nobody_sees_a_record_before_the_disk_has_it(tmp_path):
    bench = Bench(tmp_path / "data", headrace_durability="disk")
    bench.create("orders")
    bench.flushes_wait = True
    writers = [bench.connect() for _ in range(3)]
    reader = bench.connect()
    for number, writer in enumerate(writers):
        assert bench.produce("orders", str(number), session=writer) == PARKED
    assert bench.fetch("orders", max_wait_ms=500, session=reader) == PARKED
    assert len(bench.background) == 1  # one flush now; the others share the next
    bench.run_background()
    bench.run_background()
    for number, writer in enumerate(writers):
        answer = bench.answer_on(writer, produce, 12)
        assert answer.responses[0].partition_responses[0].base_offset == number
    assert values_in(only_partition(bench.answer_on(reader, fetch, 12)).records)


def test_with_durability_disk_a_flush_that_takes_too_long_is_a_timeout(tmp_path):
    bench = Bench(tmp_path / "data", headrace_durability="disk")
    bench.create("orders")
    bench.flushes_wait = True
    writer = bench.connect()
    assert bench.produce("orders", "a", session=writer) == PARKED
    bench.advance(1_000)
    [part] = bench.answer_on(writer, produce, 12).responses[0].partition_responses
    assert part.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_acks_one_does_not_wait_for_the_disk(tmp_path):
    bench = Bench(tmp_path / "data", headrace_durability="disk")
    bench.create("orders")
    bench.flushes_wait = True
    assert bench.produce("orders", "a", acks=1).base_offset == 0


def offsets(bench, time, **options):
    request = list_offsets.ListOffsetsRequest(-1)
    part = list_offsets.ListOffsetsPartition(0)
    part.timestamp = time
    request.topics = [list_offsets.ListOffsetsTopic("orders", [part])]
    return bench.ask(list_offsets, request, **options).topics[0].partitions[0]


def test_offsets_by_place_and_by_time(bench):
    bench.create("orders")
    times = []
    for value in "abc":
        times.append(bench.now.wall_ms)
        bench.produce("orders", value)
        bench.advance(10)
    assert offsets(bench, -2).offset == 0
    assert offsets(bench, -1).offset == 3
    assert (offsets(bench, -3).offset, offsets(bench, -3).timestamp) == (2, times[2])
    assert offsets(bench, times[1]).offset == 1
    assert (offsets(bench, times[1] + 1).offset, offsets(bench, times[1] + 1).timestamp) == (
        2,
        times[2],
    )
    assert offsets(bench, times[2] + 1).offset == -1
    assert offsets(bench, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_old_records_go_with_their_segments(bench):
    bench.create("orders", retention_ms=400_000, segment_ms=10_000)
    bench.produce("orders", "old")
    bench.advance(200_000)
    bench.produce("orders", "new")
    bench.advance(300_000)  # the check comes every five minutes
    assert offsets(bench, -2).offset == 1
    assert values_in(bench.fetch("orders", 1).records) == [b"new"]


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_all_topics_are_told_as_each_by_its_name_and_as_they_are_now(bench, version):
    def everything():
        nothing = [] if version == 0 else None
        return bench.ask(metadata, metadata.MetadataRequest(nothing), version=version)

    bench.create("orders", partitions=3)
    assert [topic.name for topic in everything().topics] == ["orders"]
    bench.create("bills")
    told = everything()
    assert everything() == told
    wanted = [metadata.MetadataRequestTopic(bytes(16), name) for name in ("orders", "bills")]
    request = metadata.MetadataRequest(wanted, False)
    assert bench.ask(metadata, request, version=version) == told
    bench.delete("orders")
    assert [topic.name for topic in everything().topics] == ["bills"]


def test_unknown_topics_are_made_when_a_client_asks_for_them(bench):
    wanted = [metadata.MetadataRequestTopic(bytes(16), "fresh")]
    answer = bench.ask(metadata, metadata.MetadataRequest(wanted, True))
    assert answer.topics[0].error_code == 0
    assert len(answer.topics[0].partitions) == 1
    assert bench.produce("fresh", "a").base_offset == 0


def test_unknown_topics_are_not_made_if_client_or_broker_says_no(tmp_path):
    bench = Bench(tmp_path / "data", auto_create_topics_enable="false")
    wanted = [metadata.MetadataRequestTopic(bytes(16), "fresh")]
    for allowed in (True, False):
        answer = bench.ask(metadata, metadata.MetadataRequest(wanted, allowed))
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_name_that_is_no_topic_name_is_not_made(bench):
    wanted = [metadata.MetadataRequestTopic(bytes(16), "no/way")]
    answer = bench.ask(metadata, metadata.MetadataRequest(wanted, True))
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("size", [10, 10_000, 100_000])
def test_a_full_disk_refuses_and_forgets_and_goes_on_when_there_is_room(
    bench, monkeypatch, caplog, size
):
    def no_space(self, data):
        raise OSError(28, "No space left on device")

    bench.create("orders")
    bench.produce("orders", "before")
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        for _ in range(2):
            refused = bench.produce("orders", "x" * size)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left on device" in refused.error_message
        assert caplog.text.count("No space left on device") == 1
    assert values_in(bench.fetch("orders").records) == [b"before"]
    assert bench.produce("orders", "after").base_offset == 1
    assert values_in(bench.fetch("orders").records) == [b"before", b"after"]


def test_a_disk_that_cannot_be_read_is_told_by_a_search_in_that_partition_alone(
    tmp_path, monkeypatch, caplog
):
    bench = Bench(tmp_path)
    bench.create("orders", 2)
    for partition in (0, 1):
        bench.produce("orders", "a", "b", partition=partition)
    bad = bench.node.broker.topics.leader("orders", 0).log

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
    answers = bench.ask(list_offsets, request).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert answers[1].offset == 0
    assert "Input/output error" in caplog.text and "Traceback" not in caplog.text
