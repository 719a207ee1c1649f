"""Committed offsets: kept, fetched, deleted, expired, found again."""

from random import Random
from typing import Any

import pytest

from headrace.node.coordination.group import records
from headrace.node.coordination.records import RecordCodec
from headrace.node.coordination.shard import Decision
from headrace.node.process.folders.real_disk import RealFile
from headrace.wire.protocol import record_batch
from headrace.wire.protocol.errors import ErrorCode, MalformedMessage
from headrace.wire.protocol.framing import encode_request
from headrace.wire.protocol.messages import (
    list_groups,
    offset_commit,
    offset_commit_key,
    offset_commit_value,
    offset_delete,
    offset_fetch,
)
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import WAITS, CutOff

E = ErrorCode
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data")
    rig.find("g")
    rig.create("orders", 3)
    return rig


def kept(rig):
    """Key and value of every record in the log of offsets, by partition in order."""
    found = []
    for leader in rig.node.broker.topics.by_name["__consumer_offsets"].replicas:
        data = leader.log.read(0, 1 << 20, up_to=leader.log.end_offset, at_least_one=True)
        if data is None:
            continue
        batches = data.file.read(data.length, data.position)
        for position, header in record_batch.headers_in(batches):
            batch = batches[position : position + header.size]
            found += [
                records.CODEC.decode(record.key, record.value)
                for record in record_batch.walk(batch, 1 << 20)
                if not header.is_control
            ]
    return found


@pytest.mark.parametrize("version", offset_commit.VERSIONS)
def test_every_version_commits(rig, version):
    topic_id = rig.node.broker.image.topics["orders"].id
    code = rig.commit("g", "orders", 5, version=version, topic_id=topic_id, metadata="note")
    assert code == E.NONE
    assert rig.committed("g", "orders") == 5


@pytest.mark.parametrize("version", offset_fetch.VERSIONS)
def test_every_version_fetches(rig, version):
    topic_id = rig.node.broker.image.topics["orders"].id
    rig.commit("g", "orders", 5, epoch=2, metadata="note")
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic("orders", [0, 1])]
        request = offset_fetch.OffsetFetchRequest("g", topics)
        [topic] = rig.ask(offset_fetch, request, version=version).topics
    else:
        topics = [offset_fetch.OffsetFetchRequestTopics("orders", topic_id, [0, 1])]
        group = offset_fetch.OffsetFetchRequestGroup("g", None, -1, topics)
        request = offset_fetch.OffsetFetchRequest(groups=[group])
        [topic] = rig.ask(offset_fetch, request, version=version).groups[0].topics
    first, second = topic.partitions
    assert (first.committed_offset, first.metadata, first.error_code) == (5, "note", 0)
    assert first.committed_leader_epoch == (2 if version >= 5 else -1)
    assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)


def test_null_topics_ask_for_everything_of_several_groups(rig):
    rig.commit("g", "orders", 5)
    rig.commit("g", "orders", 6, partition=2)
    rig.commit("h", "orders", 1)
    groups = [offset_fetch.OffsetFetchRequestGroup(name, None, -1, None) for name in "ghi"]
    for version in (8, 9, 10):
        request = offset_fetch.OffsetFetchRequest(groups=groups)
        g, h, i = rig.ask(offset_fetch, request, version=version).groups
        offsets = {part.partition_index: part.committed_offset for part in g.topics[0].partitions}
        assert offsets == {0: 5, 2: 6}
        assert h.topics[0].partitions[0].committed_offset == 1
        assert (i.topics, i.error_code) == ([], 0)


def test_commits_that_cannot_be_are_refused_one_by_one(rig):
    assert rig.commit("g", "never-was", 1) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.commit("g", "x", 1, version=10, topic_id=b"\7" * 16) == E.UNKNOWN_TOPIC_ID
    assert rig.commit("g", "orders", 1, metadata="x" * 4097) == E.OFFSET_METADATA_TOO_LARGE
    assert rig.commit("g", "orders", 1, metadata="x" * 4096) == E.NONE
    assert rig.commit("g", "orders", 1, partition=3) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.commit("", "orders", 1) == E.NONE  # a name like any other, for offsets
    stranger = {"member": ("m", 3)}
    assert rig.commit("never-was", "orders", 1, **stranger) == E.GROUP_ID_NOT_FOUND
    assert rig.commit("never-was", "orders", 1, version=8, **stranger) == E.ILLEGAL_GENERATION
    assert rig.committed("never-was", "orders") == -1


def test_the_records_are_kafkas_own(rig):
    rig.commit("g", "orders", 5, epoch=2, metadata="note", partition=1)
    [record] = kept(rig)
    assert (record.key.group, record.key.topic, record.key.partition) == ("g", "orders", 1)
    assert record.version == 4
    value = record.value
    assert value.topic_id == rig.node.broker.image.topics["orders"].id
    assert (value.offset, value.leader_epoch, value.metadata) == (5, 2, "note")
    assert value.commit_timestamp == rig.now.wall_ms


def test_offsets_are_found_again_after_a_kill(rig, tmp_path):
    for n in range(50):
        rig.commit(f"group-{n}", "orders", n)
        rig.commit(f"group-{n}", "orders", n + 1)
    again = GroupRig(tmp_path / "data")
    assert [again.committed(f"group-{n}", "orders") for n in range(50)] == list(range(1, 51))


def test_offsets_of_topics_that_are_not_read_are_deleted(rig):
    rig.create("other")
    member, generation = rig.stable_group("g")  # reads orders
    for topic in ("orders", "other"):
        rig.commit("g", topic, 5, member=(member, generation))

    def delete(group, *topics):
        part = offset_delete.OffsetDeleteRequestPartition(0)
        request = offset_delete.OffsetDeleteRequest(
            group, [offset_delete.OffsetDeleteRequestTopic(name, [part]) for name in topics]
        )
        answer = rig.ask(offset_delete, request)
        return answer.error_code, [one.partitions[0].error_code for one in answer.topics]

    codes = [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete("g", "orders", "other", "never-was") == (E.NONE, codes)
    assert (rig.committed("g", "orders"), rig.committed("g", "other")) == (5, -1)
    assert delete("never-was", "orders") == (E.GROUP_ID_NOT_FOUND, [])


def test_offsets_expire_some_time_after_the_last_member_left(rig, tmp_path):
    member, generation = rig.stable_group("g")
    rig.commit("g", "orders", 5, member=(member, generation))
    rig.commit("simple", "orders", 6)
    for _ in range(8):
        rig.advance(DAY_MS)  # the session is over on the first day
    assert rig.committed("simple", "orders") == -1
    assert rig.committed("g", "orders") == -1
    assert rig.ask(list_groups, list_groups.ListGroupsRequest()).groups == []
    again = GroupRig(tmp_path / "data")
    assert again.ask(list_groups, list_groups.ListGroupsRequest()).groups == []


def test_an_old_client_may_say_when_its_offset_expires(rig):
    rig.commit("g", "orders", 5, version=4, retention_ms=60_000)
    [record] = kept(rig)
    assert (record.version, record.value.expire_timestamp) == (1, rig.now.wall_ms + 60_000)
    rig.advance(600_000)
    assert rig.committed("g", "orders") == -1


def test_offsets_of_a_deleted_topic_are_forgotten(rig, tmp_path):
    rig.commit("g", "orders", 5)
    rig.delete("orders")
    rig.create("orders")
    assert rig.committed("g", "orders") == -1
    assert GroupRig(tmp_path / "data").committed("g", "orders") == -1


def no_space(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("size", [10, 4_000])
def test_a_full_disk_refuses_and_the_place_stays(rig, monkeypatch, size):
    rig.commit("g", "orders", 5)
    leader = rig.node.broker.groups.shard_of("g").journal.leader
    end = leader.high_watermark
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        if size < 2048:  # gathered: the refusal comes at the end of the turn, before any reply
            with pytest.raises(CutOff):
                rig.commit("g", "orders", 6, metadata="x" * size)
        else:
            code = rig.commit("g", "orders", 6, metadata="x" * size)
            assert code == E.NOT_COORDINATOR
    assert leader.high_watermark == leader.log.end_offset == end
    assert rig.committed("g", "orders") == 5
    assert rig.commit("g", "orders", 7) == E.NONE


def test_a_commit_that_a_later_one_loses_in_the_same_turn_is_not_answered(rig, monkeypatch):
    """The large one has the gathered ones written first, and the disk refuses those."""
    rig.commit("g", "orders", 5)
    session, later = rig.connect(), rig.connect()
    node = rig.node
    for on, note in ((session, "small"), (later, "x" * 4_000)):
        part = offset_commit.OffsetCommitRequestPartition(0, 6, -1, note)
        request = offset_commit.OffsetCommitRequest(
            "g", topics=[offset_commit.OffsetCommitRequestTopic("orders", bytes(16), [part])]
        )
        data = bytearray(b"".join(map(bytes, encode_request(offset_commit, 9, 7, "", request))))
        if on is later:
            monkeypatch.setattr(RealFile, "append", no_space)
        node.dispatch.feed(on, memoryview(data), len(data))
    assert not node.end_turn(), "what was promised to the first must not leave"
    monkeypatch.undo()
    node.dispatch.forget(session)
    assert rig.committed("g", "orders") == 5
    assert rig.commit("g", "orders", 7) == E.NONE


def test_a_marker_where_a_lost_commit_was_is_seen(rig, monkeypatch):
    """The log is as long as it was before the disk refused, but does not end with the same."""
    groups = rig.node.broker.groups
    shard = groups.shard_of("g")
    record = records.committed_offset("g", "orders", 0, OffsetCommitValue(9))
    shard.run(rig.now, lambda machine: Decision([record], True, None, (77, 0)))
    rig.node.end_turn()
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        with pytest.raises(CutOff):
            rig.commit("g", "orders", 6)
    leader = shard.journal.leader
    leader.append_marker(
        rig.now.wall_ms,
        commit=True,
        producer_id=77,
        producer_epoch=0,
        coordinator_epoch=0,
        bumps_epoch=False,
    )
    assert rig.committed("g", "orders") == 9
    assert stable(rig, "g") == E.NONE


def stable(rig, group):
    topics = [offset_fetch.OffsetFetchRequestTopics("orders", bytes(16), [0])]
    wanted = offset_fetch.OffsetFetchRequestGroup(group, None, -1, topics)
    request = offset_fetch.OffsetFetchRequest(groups=[wanted], require_stable=True)
    answer = rig.ask(offset_fetch, request, version=9)
    assert answer != WAITS
    return answer.groups[0].topics[0].partitions[0].error_code


@pytest.mark.parametrize("note", ["", "a note", "ü" * 63, "ü" * 64])
@pytest.mark.parametrize("topic_id", [bytes(16), bytes(range(16))])
def test_the_shortcut_of_the_codec_writes_what_the_generated_codec_writes(note, topic_id):
    value = OffsetCommitValue(7, 3, note, 1_700_000_000_000, -1, topic_id)
    record = records.committed_offset("gruppe", "orders", 2, value)
    key: list[Any] = [b"\0\1"]
    encoded: list[Any] = [b"\0\4"]
    offset_commit_key.ENCODE[0](record.key, key.append)
    offset_commit_value.ENCODE[4](value, encoded.append)
    assert records.CODEC.encode(record) == (b"".join(key), b"".join(encoded))
    assert records.CODEC.decode(*records.CODEC.encode(record)) == record


def test_the_shortcut_of_the_codec_reads_what_the_generated_codec_reads():
    """Also of bytes that are damaged: the same record, or the same refusal."""
    general = RecordCodec([(offset_commit_key, offset_commit_value)])
    random = Random(1)
    value = OffsetCommitValue(7, 3, "a note", 1_700_000_000_000, -1, bytes(range(16)))
    good = records.CODEC.encode(records.committed_offset("gruppe", "orders", 2, value))
    for _ in range(3_000):
        key, body = map(bytearray, good)
        part = random.choice((key, body))
        at = random.randrange(2 if part is key else 0, len(part))
        part[at : at + random.randrange(3)] = random.choice((b"", b"\xff", random.randbytes(2)))
        assert read(records.CODEC, key, body) == read(general, key, body), (key, body)


def read(codec, key, value):
    try:
        return codec.decode(bytes(key), bytes(value))
    except MalformedMessage:
        return "malformed"
