"""Large requests and long answers are made in slices; everybody else is served between them.

In these stories each turn of the loop comes one step further with them.
"""

from itertools import chain

import pytest

from headrace.node.broker.handlers import offset_fetch as offset_fetch_handler
from headrace.node.serving.api import ClosesConnection
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    add_partitions_to_txn,
    alter_configs,
    consumer_group_heartbeat,
    create_partitions,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
    write_txn_markers,
)
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import WAITS

E = ErrorCode
MANY = 3_000
NAMES = [f"unknown-{number}" for number in range(MANY)]


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data", offsets_topic_num_partitions=2)
    rig.find("g")
    rig.create("orders", 2)
    return rig


def fetch_of_many():
    wanted = [fetch.FetchPartition(index) for index in range(MANY)]
    return fetch.FetchRequest(max_wait_ms=0, topics=[fetch.FetchTopic("orders", bytes(16), wanted)])


def offsets_of_many():
    parts = [list_offsets.ListOffsetsPartition(index, -1, -1) for index in range(MANY)]
    return list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic("orders", parts)])


def committed_of_many():
    topic = offset_fetch.OffsetFetchRequestTopics("orders", bytes(16), list(range(MANY)))
    group = offset_fetch.OffsetFetchRequestGroup("g", topics=[topic])
    return offset_fetch.OffsetFetchRequest(groups=[group])


def committed_of_many_in_one_group(group="g"):
    topic = offset_fetch.OffsetFetchRequestTopic("orders", list(range(MANY)))
    return offset_fetch.OffsetFetchRequest(group, [topic])


def commit_of_many(indexes=range(MANY)):
    parts = [
        offset_commit.OffsetCommitRequestPartition(index, number, -1, "")
        for number, index in enumerate(indexes)
    ]
    topic = offset_commit.OffsetCommitRequestTopic("orders", bytes(16), parts)
    return offset_commit.OffsetCommitRequest("g", topics=[topic])


LARGE = {
    "OffsetCommit": (
        offset_commit,
        8,
        commit_of_many,
        lambda answer: {p.partition_index: p.error_code for p in answer.topics[0].partitions},
    ),
    "Metadata": (
        metadata,
        9,
        lambda: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=name) for name in ("orders", *NAMES)],
            allow_auto_topic_creation=False,
        ),
        lambda answer: {topic.name: topic.error_code for topic in answer.topics},
    ),
    "Fetch": (
        fetch,
        12,
        fetch_of_many,
        lambda answer: {p.partition_index: p.error_code for p in answer.responses[0].partitions},
    ),
    "ListOffsets": (
        list_offsets,
        7,
        offsets_of_many,
        lambda answer: {p.partition_index: p.error_code for p in answer.topics[0].partitions},
    ),
    "OffsetFetch": (
        offset_fetch,
        8,
        committed_of_many,
        lambda answer: {
            p.partition_index: p.error_code for p in answer.groups[0].topics[0].partitions
        },
    ),
    "OffsetFetch before many groups": (
        offset_fetch,
        7,
        lambda: committed_of_many_in_one_group(),
        lambda answer: {p.partition_index: p.error_code for p in answer.topics[0].partitions},
    ),
    "OffsetFetch without a place for errors": (
        offset_fetch,
        1,
        lambda: committed_of_many_in_one_group("g" * 300),
        lambda answer: {p.partition_index: p.error_code for p in answer.topics[0].partitions},
    ),
    "Metadata with what one may do": (
        metadata,
        9,
        lambda: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=name) for name in ("orders", *NAMES)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
        ),
        lambda answer: {
            "operations": answer.cluster_authorized_operations,
            **{topic.name: topic.error_code for topic in answer.topics},
        },
    ),
    "DescribeTopicPartitions": (
        describe_topic_partitions,
        0,
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(name) for name in ("orders", *NAMES)]
        ),
        lambda answer: {topic.name: topic.error_code for topic in answer.topics},
    ),
    "FindCoordinator": (
        find_coordinator,
        4,
        lambda: find_coordinator.FindCoordinatorRequest("", 0, ["g", *NAMES]),
        lambda answer: {found.key: found.error_code for found in answer.coordinators},
    ),
    "OffsetForLeaderEpoch": (
        offset_for_leader_epoch,
        4,
        lambda: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            -2,
            [
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    "orders",
                    [
                        offset_for_leader_epoch.OffsetForLeaderPartition(index, -1, 0)
                        for index in range(len(NAMES))
                    ],
                )
            ],
        ),
        lambda answer: {part.partition: part.error_code for part in answer.topics[0].partitions},
    ),
    "DeleteRecords": (
        delete_records,
        2,
        lambda: delete_records.DeleteRecordsRequest(
            [
                delete_records.DeleteRecordsTopic(
                    "orders",
                    [
                        delete_records.DeleteRecordsPartition(index, -1)
                        for index in range(len(NAMES))
                    ],
                )
            ],
            1_000,
        ),
        lambda answer: {
            part.partition_index: part.error_code for part in answer.topics[0].partitions
        },
    ),
    "WriteTxnMarkers": (
        write_txn_markers,
        1,
        lambda: write_txn_markers.WriteTxnMarkersRequest(
            [
                write_txn_markers.WritableTxnMarker(
                    7,
                    0,
                    True,
                    [
                        write_txn_markers.WritableTxnMarkerTopic(
                            "orders", [*range(len(NAMES)), *range(len(NAMES))]
                        )
                    ],
                    0,
                )
            ]
        ),
        lambda answer: {
            part.partition_index: part.error_code for part in answer.markers[0].topics[0].partitions
        },
    ),
    "DescribeQuorum": (
        describe_quorum,
        2,
        lambda: describe_quorum.DescribeQuorumRequest(
            [
                describe_quorum.RequestTopicData(
                    "__cluster_metadata",
                    [describe_quorum.RequestPartitionData(index) for index in range(MANY)],
                )
            ]
        ),
        lambda answer: {
            part.partition_index: part.error_code for part in answer.topics[0].partitions
        },
    ),
    "AlterConfigs": (
        alter_configs,
        2,
        lambda: alter_configs.AlterConfigsRequest(
            [alter_configs.AlterConfigsResource(2, name, []) for name in ("orders", *NAMES)]
        ),
        lambda answer: {each.resource_name: each.error_code for each in answer.responses},
    ),
    "DescribeProducers": (
        describe_producers,
        0,
        lambda: describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest("orders", list(range(len(NAMES))))]
        ),
        lambda answer: {
            part.partition_index: part.error_code for part in answer.topics[0].partitions
        },
    ),
    "DescribeGroups": (
        describe_groups,
        5,
        lambda: describe_groups.DescribeGroupsRequest(["g", *NAMES]),
        lambda answer: {group.group_id: group.error_code for group in answer.groups},
    ),
    "DescribeConfigs": (
        describe_configs,
        4,
        lambda: describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(2, name, None) for name in ("orders", *NAMES)]
        ),
        lambda answer: {found.resource_name: found.error_code for found in answer.results},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_request_is_answered_in_slices_as_it_would_be_at_once(rig, name, monkeypatch):
    messages, version, request, codes = LARGE[name]
    route = rig.node.dispatch.routes[messages.API_KEY << 16 | version]
    monkeypatch.setattr(route, "large_from", 1 << 30)
    at_once = codes(rig.ask(messages, request(), version=version))
    monkeypatch.undo()
    rig.slowly = True
    session = rig.connect()
    assert rig.ask(messages, request(), version=version, session=session) == WAITS
    assert rig.produce("orders", "a").error_code == E.NONE, "others are served meanwhile"
    rig.slowly = False
    rig.until_idle()
    assert codes(rig.answer_on(session, messages, version)) == at_once
    assert len(at_once) >= MANY and not session.muted and not session.line


def test_keys_are_looked_for_in_slices_also_when_their_topic_is_made_first(rig):
    rig.slowly = True
    session = rig.connect()
    request = find_coordinator.FindCoordinatorRequest("", 1, NAMES)
    assert rig.ask(find_coordinator, request, version=4, session=session) == WAITS
    while "__transaction_state" not in rig.node.broker.image.topics:
        rig.until_idle()
    rig.until_idle()
    assert session.line, "it is answered in slices from now on"
    rig.slowly = False
    rig.until_idle()
    found = rig.answer_on(session, find_coordinator, 4).coordinators
    assert [(each.key, each.error_code) for each in found] == [(name, E.NONE) for name in NAMES]


def test_a_part_of_very_many_partitions_is_taken_without_going_through_all_of_them():
    class OnlyInSlices(list[int]):
        def __iter__(self):
            raise AssertionError("all of them at once")

    indexes = OnlyInSlices([*range(MANY), *range(MANY)])
    topic = offset_fetch.OffsetFetchRequestTopics("orders", bytes(16), indexes)
    group = offset_fetch.OffsetFetchRequestGroup("g", topics=[topic])
    parts = [part.topics[0].partition_indexes for part in offset_fetch_handler.parts_of(group)]
    assert list(chain(*parts)) == list(range(MANY)), "each once"
    assert max(map(len, parts)) <= offset_fetch_handler.PARTITIONS_PER_PART


def test_a_large_commit_is_refused_from_where_it_may_not_go_on(rig):
    """It commits for a group without members; then somebody joins. What it was told is true."""
    rig.slowly = True
    session = rig.connect()
    request = commit_of_many([0] * MANY)
    assert rig.ask(offset_commit, request, version=8, session=session) == WAITS
    while rig.committed("g", "orders") == -1:
        rig.until_idle()
    rig.join("g", session=rig.connect(), version=3)
    rig.slowly = False
    rig.until_idle()
    [topic] = rig.answer_on(session, offset_commit, 8).topics
    codes = [part.error_code for part in topic.partitions]
    taken = codes.count(E.NONE)
    assert 0 < taken < MANY and len(codes) == MANY
    assert codes == [E.NONE] * taken + [E.UNKNOWN_MEMBER_ID] * (MANY - taken)
    assert rig.committed("g", "orders") == taken - 1


def test_metadata_of_very_many_partitions_is_told_in_slices(rig, monkeypatch):
    """A topic that is made meanwhile is in the next answer at the latest."""
    monkeypatch.setattr("headrace.node.broker.handlers.metadata.MANY_PARTITIONS", 1)
    everything = metadata.MetadataRequest(topics=None)
    rig.slowly = True
    session = rig.connect()
    assert rig.ask(metadata, everything, version=9, session=session) == WAITS
    rig.slowly = False
    rig.create("late")
    told = rig.answer_on(session, metadata, 9).topics
    assert {topic.name for topic in told} >= {"orders", "__consumer_offsets"}
    again = rig.ask(metadata, everything, version=9).topics
    assert "late" in {topic.name for topic in again}
    assert len(again[0].partitions) >= 1


@pytest.mark.parametrize("version", [9, 2], ids=["encoded once", "made for each"])
def test_metadata_told_in_slices_leaves_nothing_old_behind(rig, monkeypatch, version):
    """A topic changes between two slices. What was told of it before is not what the next client is
    told: it would ask the wrong broker until something else changes."""
    monkeypatch.setattr("headrace.node.broker.handlers.metadata.MANY_PARTITIONS", 1)
    for number in range(10):
        rig.create(f"t{number}")
    everything = metadata.MetadataRequest(topics=None)
    rig.slowly = True
    session = rig.connect()
    assert rig.ask(metadata, everything, version=version, session=session) == WAITS
    more = create_partitions.CreatePartitionsTopic("t9", 3, None)
    request = create_partitions.CreatePartitionsRequest([more], 1000)
    rig.send(create_partitions, request, version=3)
    rig.until_idle()
    assert len(rig.node.broker.image.topics["t9"].partitions) == 3
    assert not session.outbox, "the answer is still being made"
    rig.slowly = False
    rig.until_idle()
    rig.answer_on(session, metadata, version)
    again = {each.name: each for each in rig.ask(metadata, everything, version=version).topics}
    assert len(again["t9"].partitions) == 3


@pytest.mark.parametrize(
    ("messages", "request_of"),
    [
        (delete_topics, lambda n: [[delete_topics.DeleteTopicState(f"t{i}") for i in range(n)]]),
        (
            describe_topic_partitions,
            lambda n: [[describe_topic_partitions.TopicRequest(f"t{i}") for i in range(n)]],
        ),
        (
            add_partitions_to_txn,
            lambda n: [
                [
                    add_partitions_to_txn.AddPartitionsToTxnTransaction(
                        "tx",
                        topics=[
                            add_partitions_to_txn.AddPartitionsToTxnTopic("orders", list(range(n)))
                        ],
                    )
                ]
            ],
        ),
        (
            txn_offset_commit,
            lambda n: [
                "tx",
                "g",
                0,
                0,
                -1,
                "",
                None,
                [
                    txn_offset_commit.TxnOffsetCommitRequestTopic(
                        "orders",
                        [txn_offset_commit.TxnOffsetCommitRequestPartition(i) for i in range(n)],
                    )
                ],
            ],
        ),
        (
            consumer_group_heartbeat,
            lambda n: ["g", "m", 0, None, None, 1_000, [f"t{i}" for i in range(n)]],
        ),
        (leave_group, lambda n: ["g", "", [leave_group.MemberIdentity(f"m{i}") for i in range(n)]]),
        (
            offset_delete,
            lambda n: [
                "g",
                [
                    offset_delete.OffsetDeleteRequestTopic(
                        "orders",
                        [offset_delete.OffsetDeleteRequestPartition(i) for i in range(n)],
                    )
                ],
            ],
        ),
    ],
    ids=lambda value: getattr(value, "NAME", ""),
)
def test_what_is_decided_as_a_whole_is_refused_if_it_names_too_much(rig, messages, request_of):
    kind = getattr(messages, f"{messages.NAME}Request")
    with pytest.raises(ClosesConnection, match="at most 50000 are taken"):
        rig.ask(messages, kind(*request_of(50_001)))
    assert rig.produce("orders", "a").error_code == E.NONE


def test_requests_behind_a_large_one_are_answered_after_it(rig):
    messages, version, request, _ = LARGE["Metadata"]
    rig.slowly = True
    session = rig.send(messages, request(), version=version)
    rig.until_idle()
    assert session.muted, "nothing more is read from this connection"
    rig.slowly = False
    rig.until_idle()
    assert session.outbox and not session.muted
    assert rig.node.dispatch.resumed[-1] is session


def test_a_client_that_leaves_is_not_worked_for_any_more(rig):
    messages, version, request, _ = LARGE["DescribeGroups"]
    rig.slowly = True
    session = rig.send(messages, request(), version=version)
    rig.until_idle()
    rig.node.dispatch.forget(session)
    rig.until_idle()
    rig.until_idle()
    assert not rig.node.dispatch.long_answers


def test_an_answer_of_a_megabyte_is_not_made_while_too_many_are_unread(rig, monkeypatch):
    messages, version, request, _ = LARGE["Metadata"]
    monkeypatch.setattr("headrace.node.serving.long_answers.LARGE_ANSWER_BYTES", 100)
    monkeypatch.setattr("headrace.node.serving.long_answers.STEPS_PER_CHUNK", 2)
    rig.node.dispatch.holds_back = True
    session = rig.connect()
    assert rig.ask(messages, request(), version=version, session=session) == WAITS
    assert rig.node.work(lambda: False) is False, "the loop need not hurry"
    rig.node.dispatch.holds_back = False
    rig.until_idle()
    assert rig.answer_on(session, messages, version).topics
    assert rig.node.dispatch.large_answer is None


def test_unread_answers_keep_no_smaller_one_from_being_made(rig):
    messages, version, request, _ = LARGE["Metadata"]
    rig.node.dispatch.holds_back = True
    assert rig.ask(messages, request(), version=version).topics


def test_one_large_answer_is_made_at_a_time(rig, monkeypatch):
    messages, version, request, _ = LARGE["Metadata"]
    monkeypatch.setattr("headrace.node.serving.long_answers.LARGE_ANSWER_BYTES", 100)
    monkeypatch.setattr("headrace.node.serving.long_answers.STEPS_PER_CHUNK", 2)
    sessions = [rig.send(messages, request(), version=version) for _ in range(3)]
    made = set()
    while rig.node.work(lambda: True):
        made.add(rig.node.dispatch.large_answer)
    assert len(made - {None}) == 3
    assert all(rig.answer_on(one, messages, version).topics for one in sessions)
    assert rig.node.dispatch.large_answer is None


def test_a_large_answer_whose_client_leaves_makes_room(rig, monkeypatch):
    messages, version, request, _ = LARGE["Metadata"]
    monkeypatch.setattr("headrace.node.serving.long_answers.LARGE_ANSWER_BYTES", 100)
    monkeypatch.setattr("headrace.node.serving.long_answers.STEPS_PER_CHUNK", 2)
    gone, stays = (rig.send(messages, request(), version=version) for _ in range(2))
    while rig.node.dispatch.large_answer is None:
        rig.node.work(lambda: True)
    rig.node.dispatch.forget(gone)
    rig.until_idle()
    assert rig.answer_on(stays, messages, version).topics


def test_all_offsets_of_many_groups_are_collected_in_steps(rig, monkeypatch):
    """143 bytes that ask for 22 groups of 4,000 offsets held the loop for 2 s."""
    monkeypatch.setattr(offset_fetch_handler, "LONG_FROM", 50)
    monkeypatch.setattr(offset_fetch_handler, "PLACES_PER_STEP", 10)
    monkeypatch.setattr(offset_fetch_handler, "PARTITIONS_PER_PART", 10)
    rig.create("many", 40)
    for group in ("a", "b"):
        rig.find(group)
        for index in range(40):
            assert rig.commit(group, "many", index, partition=index, metadata="x" * index) == 0
    wanted = [offset_fetch.OffsetFetchRequestGroup(one, None, -1, None) for one in ("a", "b")]
    request = offset_fetch.OffsetFetchRequest(groups=wanted)
    asked = []
    partitions = offset_fetch.OffsetFetchResponsePartitions
    monkeypatch.setattr(
        offset_fetch_handler,
        "OffsetFetchResponsePartitions",
        lambda *fields: asked.append(fields) or partitions(*fields),
    )
    session = rig.send(offset_fetch, request, version=9)
    assert not asked, "nothing is collected while the request is taken"
    while not session.outbox:
        before = len(asked)
        rig.node.work(lambda: True)
        assert len(asked) - before <= 10
    answer = rig.answer_on(session, offset_fetch, 9)
    found = {
        group.group_id: {
            (part.partition_index, part.committed_offset, part.metadata)
            for topic in group.topics
            for part in topic.partitions
        }
        for group in answer.groups
    }
    everything = {(index, index, "x" * index) for index in range(40)}
    assert found == {"a": everything, "b": everything}
