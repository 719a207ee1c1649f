"""A disk that refuses harms only what it refuses: who lost something is told so, nobody else feels
it, and all goes on when there is room."""

from typing import Any

import pytest

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from headrace.node.serving.api import ClosesConnection
from headrace.node.storage.durability.flush import FlushOfEverything
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_user_scram_credentials,
    create_partitions,
    delete_topics,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from tests.unit.node.broker import rig as rig_module
from tests.unit.node.broker.folders.filling_disk import FillingDisk, make_room_for_rigs
from tests.unit.node.broker.groups.group_readers import Reader, describe
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import WAITS, CutOff, Rig, build, fetch_request, values_in

NONE, NO_ROOM = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
LATEST = -1


@pytest.fixture
def room(monkeypatch):
    return make_room_for_rigs(monkeypatch)


@pytest.fixture
def rig(tmp_path, room):
    rig = Rig(tmp_path / "data")
    rig.ids = {name: rig.create(name, partitions=2) for name in ("full", "other")}
    return rig


def full(path):
    return "/full-0/" in path


def request_for(rig, *places, acks=-1, version=12, value="x", **batch):
    """A Produce request of one batch for each place."""
    topics = {}
    for topic, index in places:
        data = produce.PartitionProduceData(index, build([value], rig.now.wall_ms, **batch))
        topics.setdefault(topic, []).append(data)
    return produce.ProduceRequest(
        None,
        acks,
        1_000,
        [
            produce.TopicProduceData(name, rig.ids[name] if version >= 13 else bytes(16), parts)
            for name, parts in topics.items()
        ],
    )


def send(rig, *places, version=12, session=None, **how):
    request = request_for(rig, *places, version=version, **how)
    return rig.send(produce, request, version=version, session=session)


def codes(rig, session, version=12):
    """By place; what was taken says where, what was refused does not."""
    answer = rig.answer_on(session, produce, version)
    found = {}
    names = {topic_id: name for name, topic_id in rig.ids.items()}
    for data in answer.responses:
        for part in data.partition_responses:
            assert (part.base_offset == -1) == (part.error_code != NONE)
            assert "No space" in (part.error_message or "No space") or version < 8
            found[data.name or names[data.topic_id], part.index] = part.error_code
    return found


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_each_partition_of_each_request_of_a_turn_is_told_its_own_fate(rig, room, version, acks):
    how = {"version": version, "acks": acks}
    rig.produce("full", "before")
    room.refuses = full
    refused = send(rig, ("full", 0), **how)
    taken = send(rig, ("other", 0), **how)
    both = send(rig, ("other", 1), ("full", 0), ("full", 1), **how)
    rig.until_idle()
    assert codes(rig, refused, version) == {("full", 0): NO_ROOM}
    assert codes(rig, taken, version) == {("other", 0): NONE}
    assert codes(rig, both, version) == {
        ("other", 1): NONE,
        ("full", 0): NO_ROOM,
        ("full", 1): NONE,
    }
    room.refuses = lambda path: False
    again = send(rig, ("full", 0), **how)
    rig.until_idle()
    assert codes(rig, again, version) == {("full", 0): NONE}
    assert values_in(rig.fetch("full").records) == [b"before", b"x"]
    assert not any(session.closing for session in rig.sessions)


def test_what_was_acknowledged_before_stays_so_though_its_client_has_not_taken_it(rig, room):
    slow = send(rig, ("full", 0))
    rig.until_idle()
    before = list(slow.outbox)
    room.refuses = full
    refused = send(rig, ("full", 0))
    rig.until_idle()
    assert slow.outbox == before
    assert codes(rig, refused) == {("full", 0): NO_ROOM}


def test_who_reads_in_that_turn_reads_what_is_there(rig, room):
    rig.produce("full", "before")
    waits = rig.connect()
    request = fetch_request("full", 1, max_wait_ms=10_000)
    assert rig.ask(fetch, request, version=12, session=waits) == WAITS
    room.refuses = full
    refused = send(rig, ("full", 0))
    reads = rig.send(fetch, fetch_request("full", 0), version=12)
    rig.until_idle()
    assert codes(rig, refused) == {("full", 0): NO_ROOM}
    [found] = rig.answer_on(reads, fetch, 12).responses[0].partitions
    assert found.error_code == NONE and values_in(found.records) == [b"before"]
    assert not waits.outbox, "nothing has come yet"
    room.refuses = lambda path: False
    rig.produce("full", "after")
    [found] = rig.answer_on(waits, fetch, 12).responses[0].partitions
    assert (found.error_code, values_in(found.records)) == (NONE, [b"after"])


def test_an_end_that_is_told_is_not_taken_back(rig, room):
    """Who begins to read there would miss the record that comes next."""
    rig.produce("full", "before")
    room.refuses = full
    send(rig, ("full", 0))
    part = list_offsets.ListOffsetsPartition(0, -1, LATEST)
    request = list_offsets.ListOffsetsRequest(
        -1, 0, [list_offsets.ListOffsetsTopic("full", [part])]
    )
    session = rig.send(list_offsets, request, version=9)
    rig.until_idle()
    [told] = rig.answer_on(session, list_offsets, 9).topics[0].partitions
    assert (told.error_code, told.offset) in ((NONE, 1), (NO_ROOM, -1))


def test_no_acks_are_no_promise(rig, room):
    room.refuses = full
    session = send(rig, ("full", 0), acks=0)
    rig.until_idle()
    assert not session.outbox and rig.fetch("full").high_watermark == 0


def test_a_producer_sends_again_what_was_refused_without_hole_or_double(rig, room):
    """Five are on their way at once, as clients have it; three of them come in one turn."""
    who = {"producer_id": 7, "producer_epoch": 0}
    session = rig.connect()
    room.refuses = full
    for sequence in (0, 1, 2):
        value = str(sequence)
        send(rig, ("full", 0), session=session, value=value, base_sequence=sequence, **who)
    rig.until_idle()
    frames = list(session.outbox)
    for frame in frames:
        session.outbox[:] = [frame]
        assert codes(rig, session) == {("full", 0): NO_ROOM}
    room.refuses = lambda path: False
    told = []
    for sequence in (3, 4, 0, 1, 2, 3, 4, 4):
        answer = rig.produce("full", str(sequence), base_sequence=sequence, **who)
        told.append((answer.error_code, answer.base_offset))
    early = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
    assert told == [early, early, (0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 4)]
    assert values_in(rig.fetch("full").records) == [b"0", b"1", b"2", b"3", b"4"]


def test_the_log_says_it_once_and_says_when_it_is_over(rig, room, caplog):
    room.refuses = full
    for _ in range(50):
        assert rig.produce("full", "x").error_code == NO_ROOM
        rig.advance(1_000)
    assert caplog.text.count("No space left") == 1
    assert rig.node.broker.disk_refusals == 50
    room.refuses = lambda path: False
    for _ in range(40):
        assert rig.produce("full", "x").error_code == NONE
        rig.advance(1_000)
    assert caplog.text.count("the disk has refused nothing for 30 s") == 1
    session = send(rig, ("full", 0))
    assert rig.node.broker.topics.leader("full", 0).log.active.pending, "gathered again"
    rig.until_idle()
    assert codes(rig, session) == {("full", 0): NONE}


# --- durability `disk`


@pytest.fixture
def durable(tmp_path, room):
    rig = Rig(tmp_path / "durable", headrace_durability="disk")
    rig.ids = {name: rig.create(name, partitions=2) for name in ("full", "other")}
    rig.flushes_wait = True
    return rig


def test_what_waits_for_a_flush_and_is_refused_is_not_acknowledged_by_what_comes_after(
    durable, room
):
    room.refuses = full
    session = send(durable, ("full", 0), ("other", 0))
    durable.until_idle()
    assert not session.outbox, "the other partition's flush"
    room.refuses = lambda path: False
    later = send(durable, ("full", 0))
    durable.until_idle()
    durable.run_background()
    assert codes(durable, session) == {("full", 0): NO_ROOM, ("other", 0): NONE}
    assert codes(durable, later) == {("full", 0): NONE}
    assert len(values_in(durable.fetch("full").records)) == 1


def test_an_acknowledgement_that_stands_in_line_is_changed_too(durable, room):
    session = durable.connect()
    room.refuses = full
    send(durable, ("other", 0), session=session)
    send(durable, ("full", 0), session=session, acks=1)
    durable.until_idle()
    assert not session.outbox and session.line_bytes == len(session.line[1].pieces[0])
    durable.run_background()
    taken, refused = session.outbox
    session.outbox[:] = [taken]
    assert codes(durable, session) == {("other", 0): NONE}
    session.outbox[:] = [refused]
    assert codes(durable, session) == {("full", 0): NO_ROOM}
    assert session.line_bytes == 0


def test_a_flush_that_fails_is_the_last_that_is_believed(durable):
    """The second one reports no error: the system has told it already, and dropped the pages."""
    durable.flushes_wait = False
    durable.ids["often"] = durable.create("often")
    durable.flushes_wait = True
    session = send(durable, ("often", 0))
    often = durable.node.broker.topics.leader("often", 0).log
    durable.node.durability.log_flushes.append(FlushOfEverything(often))  # as after `flush.ms`
    durable.until_idle()
    assert len(durable.background) == 2, "the topic's own and that of the acknowledgement"
    durable.background.popleft()[1](OSError(5, "Input/output error"))
    durable.run_background()
    assert durable.node.failure is not None
    assert not session.outbox
    assert durable.fetch("often").high_watermark == 0


class Sectors:
    """What the disk has of each file, whatever the system shows of it."""

    def __init__(self):
        self.has = {}  # path -> bytes
        self.dirty = set()  # paths that the system knows it must still write
        self.fails = False

    def flush(self, path):
        written, self.dirty = path in self.dirty, self.dirty - {path}
        if self.fails:
            raise OSError(5, "Input/output error")  # told once; then the pages count as written
        if written:
            with open(path, "rb") as file:
                self.has[path] = file.read()

    def cut_power(self):
        for path, data in self.has.items():
            if path.endswith(".log") and "/orders-0/" in path:
                with open(path, "wb") as file:
                    file.write(data)


class SectorFile(RealFile):
    __slots__ = ("sectors",)
    sectors: Any

    def append(self, data):
        self.sectors.dirty.add(self.path)
        super().append(data)

    def write_at(self, data, position):
        self.sectors.dirty.add(self.path)
        super().write_at(data, position)

    def flush(self):
        self.sectors.flush(self.path)


class SectorDisk(RealDisk):
    __slots__ = ("sectors",)

    def __init__(self, sectors):
        self.sectors = sectors

    def open(self, path, *, create=False):
        plain = super().open(path, create=create)
        file = SectorFile(path, plain._fd)
        plain._fd = -1
        file.sectors = self.sectors
        return file


def test_what_a_failed_flush_has_lost_is_not_acknowledged_after_a_restart(tmp_path, monkeypatch):
    """The system still shows it from memory, and the producer sends it again: a duplicate."""
    sectors = Sectors()
    monkeypatch.setattr(rig_module, "RealDisk", lambda: SectorDisk(sectors))
    settings = {"headrace_durability": "disk"}
    who = {"producer_id": 7, "producer_epoch": 0}
    first = Rig(tmp_path, **settings)
    first.create("orders")
    assert first.produce("orders", "a", base_sequence=0, **who).error_code == NONE
    first.flushes_wait = True
    assert first.produce("orders", "b", base_sequence=1, **who) == WAITS
    sectors.fails = True
    for work, done in list(first.background):
        with pytest.raises(OSError):
            work()
        done(OSError(5, "Input/output error"))
    assert first.node.failure is not None
    sectors.fails = False
    again = Rig(tmp_path, **settings)
    assert again.produce("orders", "b", base_sequence=1, **who).error_code == NONE
    seen = values_in(again.fetch("orders").records)
    sectors.cut_power()
    after = Rig(tmp_path, **settings)
    assert values_in(after.fetch("orders").records) == seen == [b"a", b"b"]


# --- groups


@pytest.fixture
def groups(tmp_path, room):
    rig = GroupRig(tmp_path / "groups", offsets_topic_num_partitions=1)
    rig.ids = {name: rig.create(name, partitions=2) for name in ("full", "other")}
    rig.find("g")
    return rig


def of_groups(path):
    return "/__consumer_offsets" in path


def test_one_turn_of_groups_is_cut_off_then_each_is_told_why(groups, room):
    waits = groups.connect()
    request = fetch_request("other", 0, max_wait_ms=1_000_000)
    assert groups.ask(fetch, request, version=12, session=waits) == WAITS
    assert groups.commit("g", "full", 1) == NONE
    room.refuses = of_groups
    with pytest.raises(CutOff):
        groups.commit("g", "full", 2)
    for _ in range(3):
        assert groups.commit("g", "full", 2) == ErrorCode.NOT_COORDINATOR
        assert groups.committed("g", "full") == 1
    assert groups.produce("other", "goes on").error_code == NONE
    assert waits.outbox and not waits.closing
    room.refuses = lambda path: False
    assert groups.commit("g", "full", 2) == NONE
    assert groups.committed("g", "full") == 2


def test_a_commit_that_waits_for_a_flush_is_not_answered_by_another_group(tmp_path, room):
    groups = GroupRig(
        tmp_path / "durable", offsets_topic_num_partitions=1, headrace_durability="disk"
    )
    groups.create("full")
    groups.find("g", "h")
    groups.flushes_wait = True
    part = offset_commit.OffsetCommitRequestPartition(0, 5, -1, "")
    topics = [offset_commit.OffsetCommitRequestTopic("full", bytes(16), [part])]
    refused = groups.send(
        offset_commit, offset_commit.OffsetCommitRequest("g", topics=topics), version=9
    )
    room.refuses = of_groups
    groups.until_idle()
    room.refuses = lambda path: False
    groups.flushes_wait = False
    assert groups.commit("h", "full", 5) == NONE
    assert refused.closing and not refused.outbox, "its client comes again"
    assert groups.committed("g", "full") == -1


def test_sessions_that_cannot_be_ended_for_want_of_room_are_not_tried_all_the_time(groups, room):
    reader = Reader(groups, "g", "a", "other")
    assert reader.beat().error_code == NONE
    room.refuses = of_groups
    for _ in range(1_200):  # the coordinators look each time; a session has 45 s
        groups.advance(100)
    assert 25 < room.refused < 35, "once, and when the state was loaded anew each second"
    assert len(describe(groups).members) == 1
    room.refuses = lambda path: False
    for _ in range(12):
        groups.advance(100)
    assert describe(groups).members == []


def test_who_waits_for_others_is_told_when_the_group_must_be_loaded_anew(groups, room):
    first, _, _ = groups.member("g")
    waits = groups.member("g")[1]
    assert groups.heartbeat("g", first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waits.line and not waits.outbox
    room.refuses = of_groups
    with pytest.raises(CutOff):
        groups.commit("h", "full", 2)
    groups.advance(100)
    assert groups.answer_on(waits, join_group, 9).error_code == ErrorCode.NOT_COORDINATOR


def test_a_node_stops_on_a_full_disk(rig, room, tmp_path):
    rig.produce("full", "before")
    room.refuses = lambda path: True
    rig.node.stop()
    assert rig.node.stopped
    room.refuses = lambda path: False
    again = Rig(tmp_path / "data")
    assert values_in(again.fetch("full").records) == [b"before"]
    assert again.produce("full", "after").error_code == NONE


def test_a_topic_that_has_no_room_for_its_folders_gets_them_later(rig, room, tmp_path, caplog):
    room.refuses_files = True
    rig.ids["new"] = rig.create("new", partitions=3)
    rig.ids["gone"] = rig.create("gone", partitions=3)
    for _ in range(5):
        rig.advance(1_000)
        assert rig.produce("new", "x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.produce("other", "goes on").error_code == NONE
    assert caplog.text.count("No space left") == 1
    gone = [delete_topics.DeleteTopicState("gone")]
    answer = rig.ask(delete_topics, delete_topics.DeleteTopicsRequest(gone, [], 1_000))
    assert answer.responses[0].error_code == NONE
    room.refuses_files = False
    rig.advance(1_000)
    assert rig.produce("new", "x", partition=2).error_code == NONE
    assert rig.produce("gone", "x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    folders = {path.name for path in (tmp_path / "data").iterdir() if path.is_dir()}
    assert {"new-0", "new-1", "new-2"} <= folders and not {"gone-0", "gone-1"} & folders


def test_a_coordinator_works_when_all_its_partitions_have_room(tmp_path, room):
    """Which partition a group belongs to depends on how many there are."""
    groups = GroupRig(tmp_path)
    groups.create("full")
    lets = iter([True, False])

    def some_room(self, path, pieces, *, flush=True):
        if not next(lets, False):
            raise OSError(28, "No space left on device")
        RealDisk.write_file(self, path, pieces, flush=flush)

    with pytest.MonkeyPatch.context() as filling:
        filling.setattr(FillingDisk, "write_file", some_room)
        groups.find("g")
    assert groups.commit("g", "full", 5) == ErrorCode.NOT_COORDINATOR
    groups.advance(1_000)
    assert groups.commit("g", "full", 5) == NONE
    assert groups.committed("g", "full") == 5
    assert GroupRig(tmp_path).committed("g", "full") == 5


def test_what_cannot_be_noted_in_the_metadata_is_refused_and_nobody_is_misled(tmp_path, room):
    rig = Rig(tmp_path)
    rig.create("full")
    room.refuses = lambda path: "/__cluster_metadata" in path
    topics = [delete_topics.DeleteTopicState("full")]
    answer = rig.ask(delete_topics, delete_topics.DeleteTopicsRequest(topics, [], 1_000))
    assert answer.responses[0].error_code == NO_ROOM
    more = create_partitions.CreatePartitionsTopic("full", 3, None)
    answer = rig.ask(create_partitions, create_partitions.CreatePartitionsRequest([more], 1_000))
    assert answer.results[0].error_code == NO_ROOM
    user = alter_user_scram_credentials.ScramCredentialUpsertion("u", 1, 4_096, b"salt", b"x" * 32)
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest([], [user])
    assert rig.ask(alter_user_scram_credentials, request).results[0].error_code == NO_ROOM
    wanted = [metadata.MetadataRequestTopic(bytes(16), name) for name in ("full", "fresh")]
    answer = rig.ask(metadata, metadata.MetadataRequest(wanted, True), version=12)
    assert len(answer.brokers) == 1
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {t.name: t.error_code for t in answer.topics} == {"full": NONE, "fresh": unknown}
    request = find_coordinator.FindCoordinatorRequest("g", 0, ["g"])
    [found] = rig.ask(find_coordinator, request).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.refuses = lambda path: False
    [found] = rig.ask(find_coordinator, request).coordinators
    assert found.error_code == NONE


@pytest.mark.parametrize(
    ("api", "version", "request_"),
    [
        (metadata, 12, metadata.MetadataRequest(None)),
        (metadata, 12, metadata.MetadataRequest([metadata.MetadataRequestTopic(name="other")])),
        (find_coordinator, 6, find_coordinator.FindCoordinatorRequest("", 0, ["readers"])),
        (
            describe_topic_partitions,
            0,
            describe_topic_partitions.DescribeTopicPartitionsRequest([], 100, None),
        ),
    ],
)
def test_a_broker_that_cannot_keep_the_metadata_sends_clients_to_another(
    rig, api, version, request_
):
    """It would name the leaders of before, and a client could ask it for ever."""
    rig.ask(api, request_, version=version)
    rig.node.broker.is_left_behind = lambda: True
    with pytest.raises(ClosesConnection, match="what this broker knows is out of date"):
        rig.ask(api, request_, version=version)
