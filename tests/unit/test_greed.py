"""What a client could make a node do, keep or say without end, beyond the holes that have a name.

Each is bounded: by a number, or by a time after which it is forgotten. What is bounded by quotas
and ACLs only, as in Apache Kafka, is in docs/guide/limits.md.
"""

from __future__ import annotations

import re
import sys
from struct import pack

import pytest

from headrace.node.broker.records import fetch_sessions
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.dispatch import MOST_BYTES_OWED, MOST_REQUESTS_IN_LINE
from headrace.wire.protocol.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    consumer_group_describe,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_fetch,
)
from tests.unit.node.broker.groups.group_readers import Reader
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.guarded_rig import Guarded
from tests.unit.node.broker.rig import WAITS
from tests.unit.node.serving.conversation import frame

E = ErrorCode
TIMES = 20_000
DAY_MS = 24 * 3600 * 1000
BROKER, TOPIC, GROUP, CLIENT_METRICS = 4, 2, 32, 16


@pytest.fixture
def rig(tmp_path):
    rig = GroupRig(tmp_path / "data", transaction_state_log_num_partitions=1)
    rig.find("g")
    rig.find("t", key_type=1)
    rig.create("orders", 3)
    return rig


# ---- answers that nobody takes ------------------------------------------------------------------


def test_answers_behind_one_that_waits_are_bounded(rig):
    """A member joins, and while it waits for the others it asks for metadata without end."""
    rig.create("wide", 500)
    first = rig.join("g").member_id
    rig.join("g", first)
    second = rig.join("g").member_id
    session = rig.connect()
    assert rig.join("g", second, session=session) == WAITS
    one = frame(3, 1, pack(">i", 1) + pack(">h", 4) + b"wide")
    flood = bytearray(one * 5_000)
    taken = rig.node.dispatch.feed(session, memoryview(flood), len(flood))
    assert taken < len(flood) and session.muted, "it is not read any more"
    assert len(session.line) <= MOST_REQUESTS_IN_LINE
    held = sum(len(piece) for reply in session.line for piece in reply.pieces or ())
    assert held < MOST_BYTES_OWED + 100_000
    rig.join("g", first, session=rig.connect())
    rig.until_idle()
    assert not session.line and not session.muted, "the other one has joined: it may go on"
    assert rig.node.dispatch.resumed[-1] is session


# ---- the same thing, named again and again ------------------------------------------------------


def test_who_is_named_many_times_is_answered_once(rig):
    reader = Reader(rig, "c", "m", "orders")
    reader.beat()
    rig.commit("g", "orders", 7, metadata="n" * 4000)
    rig.produce("orders", "x", producer_id=5, producer_epoch=0, base_sequence=0)
    topics = [offset_fetch.OffsetFetchRequestTopics("orders", bytes(16), [0] * TIMES)] * 2
    groups = [offset_fetch.OffsetFetchRequestGroup("g", topics=topics)] * 3
    answer = rig.ask(offset_fetch, offset_fetch.OffsetFetchRequest(groups=groups), version=9)
    [group] = answer.groups
    assert sum(len(topic.partitions) for topic in group.topics) == 1
    request = describe_groups.DescribeGroupsRequest(["g"] * TIMES)
    assert len(rig.ask(describe_groups, request).groups) == 1
    request = consumer_group_describe.ConsumerGroupDescribeRequest(["c"] * TIMES)
    assert len(rig.ask(consumer_group_describe, request).groups) == 1
    topic = describe_producers.TopicRequest("orders", [0] * TIMES)
    request = describe_producers.DescribeProducersRequest([topic] * 3)
    told = rig.ask(describe_producers, request).topics
    assert sum(len(one.partitions) for one in told) == 1
    request = describe_transactions.DescribeTransactionsRequest(["t"] * TIMES)
    assert len(rig.ask(describe_transactions, request).transaction_states) == 1
    request = find_coordinator.FindCoordinatorRequest("", 0, ["g"] * TIMES)
    assert len(rig.ask(find_coordinator, request).coordinators) == 1


def test_settings_are_told_once_and_not_without_end(rig, monkeypatch):
    asked = describe_configs.DescribeConfigsRequest()
    asked.resources = [describe_configs.DescribeConfigsResource(BROKER, "1", None)] * TIMES
    assert len(rig.ask(describe_configs, asked).results) == 1
    monkeypatch.setattr("headrace.node.broker.handlers.describe_configs.MOST_SETTINGS", 100)
    asked.resources = [
        describe_configs.DescribeConfigsResource(GROUP, f"made up {n}", None) for n in range(100)
    ]
    results = rig.ask(describe_configs, asked).results
    assert sum(len(result.configs) for result in results) < 150
    assert results[0].error_code == E.NONE and results[-1].error_code == E.POLICY_VIOLATION


def test_searches_by_time_are_made_once_for_a_partition(rig):
    part = list_offsets.ListOffsetsPartition(0, -1, 1_000)
    topic = list_offsets.ListOffsetsTopic("orders", [part])
    request = list_offsets.ListOffsetsRequest(-1, 0, [topic] * 100)
    answers = rig.ask(list_offsets, request).topics
    assert {p.error_code for topic in answers for p in topic.partitions} == {E.INVALID_REQUEST}


def test_filters_of_entries_are_bounded(tmp_path):
    rig = Guarded(tmp_path / "data")
    for number in range(3):
        rig.allow(Operation.READ, f"orders-{number}")
    anything = delete_acls.DeleteAclsFilter(
        ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
    )
    request = delete_acls.DeleteAclsRequest([anything] * 2_000)
    results = rig.ask(delete_acls, request).filter_results
    assert {result.error_code for result in results} == {E.POLICY_VIOLATION}
    assert len(rig.node.controller.image.acls) == 3
    entry = create_acls.AclCreation(
        ResourceType.TOPIC,
        "x",
        PatternType.LITERAL,
        "User:x",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    many = [create_acls.AclCreation(*fields_of(entry, f"{n}")) for n in range(10_001)]
    results = rig.ask(create_acls, create_acls.CreateAclsRequest(many)).results
    assert {result.error_code for result in results} == {E.POLICY_VIOLATION}


def fields_of(entry, name):
    fields = [getattr(entry, slot) for slot in entry.__slots__]
    return [fields[0], name, *fields[2:]]


# ---- things that are made up --------------------------------------------------------------------


def test_a_million_partitions_are_refused_before_they_are_made(rig):
    topic = create_topics.CreatableTopic("huge", 1_000_000, 1)
    answer = rig.ask(create_topics, create_topics.CreateTopicsRequest([topic], 1_000))
    assert answer.topics[0].error_code == E.POLICY_VIOLATION
    for count in (1_000_000, 2**31 - 1):
        more = create_partitions.CreatePartitionsTopic("orders", count, None)
        request = create_partitions.CreatePartitionsRequest([more], 1_000)
        [result] = rig.ask(create_partitions, request).results
        assert result.error_code == E.POLICY_VIOLATION
    assert set(rig.node.broker.topics.by_name) >= {"orders"}
    assert "huge" not in rig.node.broker.topics.by_name


@pytest.mark.parametrize(
    "request_of",
    [
        lambda indexes: elect_leaders.ElectLeadersRequest(
            0, [elect_leaders.TopicPartitions("orders", indexes)]
        ),
        lambda indexes: list_partition_reassignments.ListPartitionReassignmentsRequest(
            1_000, [list_partition_reassignments.ListPartitionReassignmentsTopics("t", indexes)]
        ),
        lambda indexes: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "/", [alter_replica_log_dirs.AlterReplicaLogDirTopic("t", indexes)]
                )
            ]
        ),
        lambda indexes: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    "t",
                    [alter_partition_reassignments.ReassignablePartition(i) for i in indexes],
                )
            ]
        ),
    ],
    ids=["elections", "list", "folders", "reassignments"],
)
def test_more_partitions_than_a_cluster_has_end_the_connection(rig, request_of):
    messages = sys.modules[type(request_of([])).__module__]
    rig.ask(messages, request_of(list(range(100))))
    with pytest.raises(ClosesConnection, match="names 50001 partitions"):
        rig.ask(messages, request_of(list(range(50_001))))


@pytest.mark.parametrize("by_id", [False, True])
def test_fetch_sessions_hold_a_bounded_number_of_partitions(rig, monkeypatch, by_id):
    """A session that names ever more partitions, of topics that nobody has."""
    monkeypatch.setattr(fetch_sessions, "MOST_ENTRIES", 1_000)
    version = 16 if by_id else 12
    sessions = rig.node.broker.fetch_sessions

    def ask(session_id, epoch, name, count):
        request = fetch.FetchRequest()
        request.session_id, request.session_epoch = session_id, epoch
        parts = [fetch.FetchPartition(index) for index in range(count)]
        topic_id = name.encode().ljust(16, b"x")
        request.topics = [fetch.FetchTopic("" if by_id else name, topic_id, parts)]
        return rig.ask(fetch, request, version=version)

    one = ask(0, 0, "a", 600).session_id
    assert one
    other = ask(0, 0, "b", 300).session_id
    assert other and len(sessions) == 2
    assert ask(one, 1, "c", 200).error_code == E.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 1, "it is closed, and has to begin anew"
    full = ask(0, 0, "d", 900)
    assert full.session_id == 0 and len(full.responses[0].partitions) == 900, "without a session"
    assert ask(0, 0, "e", 600).session_id, "there is room again for who asks for less"


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+b", "(.*.*.*.*)*x", "a{1000}{1000}", "(" * 3000]
)
def test_no_pattern_of_topics_takes_its_time(rig, pattern):
    """RE2 takes time in proportion to the names; what would need more memory is refused."""
    for number in range(20):
        rig.create("a" * 200 + str(number))
    answer = Reader(rig, "c", "m").beat(topics=None, regex=pattern)
    assert answer.error_code in (E.NONE, E.INVALID_REGULAR_EXPRESSION)
    long = Reader(rig, "c", "n").beat(topics=None, regex="a" * 10_001)
    assert long.error_code == E.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("digits", ["9" * 5_000, "-" + "9" * 5_000, "+-1", "1_000", "٣"])
def test_numbers_that_are_none_are_refused(rig, digits):
    topic = create_topics.CreatableTopic("new", 1, 1)
    topic.configs = [create_topics.CreatableTopicConfig("retention.ms", digits)]
    answer = rig.ask(create_topics, create_topics.CreateTopicsRequest([topic], 1_000))
    assert answer.topics[0].error_code == E.INVALID_CONFIG
    wanted = describe_configs.DescribeConfigsResource(BROKER, digits, None)
    asked = describe_configs.DescribeConfigsRequest([wanted])
    assert rig.ask(describe_configs, asked).results[0].error_code == E.INVALID_REQUEST
    overrides = f"127.0.0.1:{digits}"
    for kind, name, setting, value in (
        (BROKER, digits, "log.retention.ms", "1"),
        (BROKER, "1", "max.connections.per.ip.overrides", overrides),
        (CLIENT_METRICS, "m", "match", "client_id=" + "(" * 3_000),
        (CLIENT_METRICS, "m", "match", "client_id=a{99999999999999999999}"),
    ):
        change = incremental_alter_configs.AlterableConfig(setting, 0, value)
        resource = incremental_alter_configs.AlterConfigsResource(kind, name, [change])
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], False)
        [answer] = rig.ask(incremental_alter_configs, request).responses
        assert answer.error_code in (E.INVALID_REQUEST, E.INVALID_CONFIG), (setting, value[:30])


# ---- what is forgotten in the end ---------------------------------------------------------------


def test_made_up_transactional_ids_are_forgotten(rig):
    for number in range(300):
        request = init_producer_id.InitProducerIdRequest(f"made up {number}", 60_000)
        assert rig.ask(init_producer_id, request).error_code == 0
    assert transactions(rig) == 300
    rig.advance(8 * DAY_MS)
    assert transactions(rig) == 0


def transactions(rig):
    machines = rig.node.broker.transactions.machines(rig.now)
    return sum(len(machine.transactions) for machine in machines)


def test_made_up_producers_and_groups_are_forgotten(rig):
    for number in range(300):
        more = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
        assert rig.produce("orders", "x", **more).error_code == 0
        assert rig.commit(f"made up {number}", "orders", 1, metadata="n" * 4_096) == 0
        assert Reader(rig, f"made up too {number}", "m", "orders").beat().error_code == 0
    [leader, *_] = rig.node.broker.topics.by_name["orders"].replicas
    assert len(leader.log.producers.producers) == 300 and kept_groups(rig) == 600
    rig.advance(2 * DAY_MS)
    assert not leader.log.producers.producers
    rig.advance(8 * DAY_MS)
    rig.advance(DAY_MS)
    assert kept_groups(rig) == 0


def kept_groups(rig):
    machines = list(rig.node.broker.groups.machines(rig.now))
    return len({name for m in machines for name in (*m.groups, *m.offsets.by_group)})


def test_topics_that_are_asked_for_and_not_made_leave_nothing(tmp_path):
    """Metadata of names that nobody has, on a node that makes none by itself."""
    rig = GroupRig(tmp_path / "data", auto_create_topics_enable="false")
    names = [metadata.MetadataRequestTopic(bytes(16), f"made-up-{n}") for n in range(5_000)]
    answer = rig.ask(metadata, metadata.MetadataRequest(names, True))
    assert {topic.error_code for topic in answer.topics} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert not rig.node.broker.described and not rig.node.broker.topics.by_name


def test_client_ids_that_are_made_up_name_no_line_of_the_metrics(rig):
    """Labels of metrics are names of APIs, topics and partitions: none that a client invents."""
    from headrace.node.process.metrics.metrics import request_families

    ask = frame(3, 1, pack(">i", 0), client_id=b"made-up")
    session = rig.connect()
    rig.node.dispatch.feed(session, memoryview(bytearray(ask)), len(ask))
    families = list(request_families(list(rig.node.dispatch.routes.values())))
    assert families and not re.search("made-up", repr(families))
