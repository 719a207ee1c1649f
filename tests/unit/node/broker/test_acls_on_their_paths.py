"""Rights that come and go while clients talk, and what an answer must not give away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.principal import Principal
from headrace.node.serving.session import Session
from headrace.wire.protocol.acls import Operation, PatternType, ResourceType
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.framing import encode_request
from headrace.wire.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    delete_topics,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from tests.unit.node.broker.guarded_rig import Guarded
from tests.unit.node.broker.rig import WAITS, Rig, build, fetch_request, only_partition, values_in

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ZERO = bytes(16)


@pytest.fixture
def rig(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path / "data")


# --- produce


def test_a_producer_that_is_recognized_by_its_first_bytes_is_asked_again(rig: Guarded) -> None:
    rig.create("orders")
    rig.allow(Operation.WRITE, "orders")
    session = rig.alice()
    for number in range(3):
        assert rig.produce("orders", f"v{number}", session=session).base_offset == number
    assert session.remembered is not None and session.remembered.produce.known, (
        "it is recognized by now"
    )
    rig.take_away(Operation.WRITE)
    refused = rig.produce("orders", "secret", session=session)
    assert (refused.error_code, refused.base_offset) == (DENIED, -1)
    assert values_in(rig.fetch("orders").records) == [b"v0", b"v1", b"v2"]
    assert [about[1:] for about in rig.seen_denied] == [(Operation.WRITE, TOPIC, "orders")]
    rig.allow(Operation.WRITE, "orders")
    assert rig.produce("orders", "v3", session=session).base_offset == 3


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(TOPIC, "orders", DENIED), (GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED)],
)
def test_a_commit_that_is_recognized_by_its_first_bytes_is_asked_again(
    rig: Guarded, kind: ResourceType, name: str, code: ErrorCode
) -> None:
    rig.create("orders")
    rig.allow(Operation.READ, "orders")
    rig.allow(Operation.READ, "g", GROUP)
    find = find_coordinator.FindCoordinatorRequest("g", 0, ["g"])
    rig.ask(find_coordinator, find, version=6)
    session = rig.alice()

    def commit(offset: int) -> ErrorCode:
        part = offset_commit.OffsetCommitRequestPartition(0, offset, -1, "")
        topic = offset_commit.OffsetCommitRequestTopic("orders", ZERO, [part])
        request = offset_commit.OffsetCommitRequest("g", -1, "", None, -1, [topic])
        answer = rig.ask(offset_commit, request, version=9, session=session)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    assert [commit(offset) for offset in (1, 2, 3)] == [ErrorCode.NONE] * 3
    assert session.remembered.commits.known, "it is recognized by now"
    rig.take_away(Operation.READ)
    other = (GROUP, "g") if kind is TOPIC else (TOPIC, "orders")
    rig.allow(Operation.READ, other[1], other[0])
    assert commit(4) == code
    assert [about[1:] for about in rig.seen_denied] == [(Operation.READ, kind, name)]
    rig.allow(Operation.READ, name, kind)
    assert commit(5) == ErrorCode.NONE


def test_a_partition_that_is_refused_does_not_touch_its_neighbours(rig: Guarded) -> None:
    rig.create("orders")
    rig.create("secrets")
    rig.allow(Operation.WRITE, "orders")
    data = [
        produce.TopicProduceData(
            name, ZERO, [produce.PartitionProduceData(0, build(["x"], rig.now.wall_ms))]
        )
        for name in ("secrets", "orders", "nowhere")
    ]
    request = produce.ProduceRequest(None, 1, 1000, data)
    answer = rig.ask(produce, request, version=9, session=rig.alice())
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"secrets": DENIED, "orders": 0, "nowhere": DENIED}
    assert rig.fetch("secrets").high_watermark == 0


def test_acks_none_without_the_right_ends_the_connection(rig: Guarded) -> None:
    rig.create("orders")
    with pytest.raises(ClosesConnection, match="acks=0"):
        rig.produce("orders", "x", acks=0, session=rig.alice())


@pytest.mark.parametrize("durability", ["page-cache", "disk"])
@pytest.mark.parametrize("version", [9, 12, 13])
def test_a_batch_of_a_transaction_needs_the_transactional_id_too(
    tmp_path: Path, version: int, durability: str
) -> None:
    rig = Guarded(tmp_path / "data", headrace_durability=durability)
    topic_id = rig.create("orders")
    rig.allow(Operation.WRITE, "orders")
    find = find_coordinator.FindCoordinatorRequest("payer", 1, ["payer"])
    rig.ask(find_coordinator, find)
    init = init_producer_id.InitProducerIdRequest("payer", 60_000)
    producer = rig.ask(init_producer_id, init)

    def send(transactional_id: str | None) -> int:
        records = build(
            ["x"],
            rig.now.wall_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        name, id = ("", topic_id) if version >= 13 else ("orders", ZERO)
        data = produce.TopicProduceData(name, id, [produce.PartitionProduceData(0, records)])
        request = produce.ProduceRequest(transactional_id, -1, 1000, [data])
        answer = rig.ask(produce, request, version=version, session=rig.alice())
        return int(answer.responses[0].partition_responses[0].error_code)

    assert send("payer") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert send(None) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert rig.fetch("orders").high_watermark == 0
    rig.allow(Operation.WRITE, "payer", ResourceType.TRANSACTIONAL_ID)
    assert send("payer") != ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_topic_without_the_right_does_not_become_part_of_a_transaction(tmp_path: Path) -> None:
    """With durability on disk partitions are added ahead of their records."""
    rig = Guarded(tmp_path / "data", headrace_durability="disk")
    rig.create("secrets")
    rig.allow(Operation.WRITE, "payer", ResourceType.TRANSACTIONAL_ID)
    rig.ask(find_coordinator, find_coordinator.FindCoordinatorRequest("payer", 1, ["payer"]))
    init = init_producer_id.InitProducerIdRequest("payer", 60_000)
    producer = rig.ask(init_producer_id, init)
    records = build(
        ["x"],
        rig.now.wall_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = produce.TopicProduceData("secrets", ZERO, [produce.PartitionProduceData(0, records)])
    request = produce.ProduceRequest("payer", -1, 1000, [data])
    answer = rig.ask(produce, request, version=12, session=rig.alice())
    assert answer.responses[0].partition_responses[0].error_code == DENIED
    machine = rig.node.broker.transactions.machine_of("payer", rig.now)
    assert machine.transactions["payer"].partitions == frozenset()


# --- fetch


def test_a_reader_that_waits_loses_its_right(rig: Guarded) -> None:
    rig.create("orders")
    rig.allow(Operation.READ, "orders")
    reader = rig.alice()
    assert rig.fetch("orders", max_wait_ms=500, session=reader) == WAITS
    rig.take_away(Operation.READ)
    rig.produce("orders", "secret")
    found = only_partition(rig.answer_on(reader, fetch, 12))
    assert (found.error_code, bytes(found.records or b"")) == (DENIED, b"")


def test_a_fetch_session_learns_that_a_right_is_gone_though_nothing_is_appended(
    rig: Guarded,
) -> None:
    rig.create("orders")
    rig.allow(Operation.READ, "orders")
    reader = rig.alice()
    opening = fetch_request("orders", 0)
    opening.session_epoch = 0
    opened = rig.ask(fetch, opening, version=12, session=reader)
    assert opened.session_id and only_partition(opened).error_code == 0

    def goes_on(epoch: int) -> Any:
        request = fetch.FetchRequest(session_id=opened.session_id, session_epoch=epoch)
        request.max_bytes = 1_000
        return rig.ask(fetch, request, version=12, session=reader).responses

    assert goes_on(1) == []
    rig.take_away(Operation.READ)
    assert goes_on(2)[0].partitions[0].error_code == DENIED
    assert goes_on(3)[0].partitions[0].error_code == DENIED
    rig.allow(Operation.READ, "orders")
    assert [part.error_code for topic in goes_on(4) for part in topic.partitions] in ([], [0])


def test_a_topic_id_that_is_known_and_not_allowed_keeps_its_name(rig: Guarded) -> None:
    topic_id = rig.create("secrets")
    request = fetch_request("", 0)
    request.topics[0].topic_id = topic_id
    [topic] = rig.ask(fetch, request, version=13, session=rig.alice()).responses
    assert topic.partitions[0].error_code == DENIED
    request.topics[0].topic_id = b"x" * 16
    [topic] = rig.ask(fetch, request, version=13, session=rig.alice()).responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# --- what answers give away


def ask_metadata(rig: Guarded, *wanted: Any, version: int = 12, **more: bool) -> list[Any]:
    request = metadata.MetadataRequest(list(wanted), **more)
    answer = rig.ask(metadata, request, version=version, session=rig.alice())
    return list(answer.topics)


def test_metadata_does_not_tell_whether_a_hidden_topic_exists(rig: Guarded) -> None:
    topic_id = rig.create("secrets")
    named = metadata.MetadataRequestTopic
    there, not_there = ask_metadata(
        rig, named(name="secrets"), named(name="nowhere"), allow_auto_topic_creation=False
    )
    for topic in (there, not_there):
        assert (topic.error_code, topic.topic_id, topic.partitions) == (DENIED, ZERO, [])
    [by_id] = ask_metadata(rig, named(name=None, topic_id=topic_id))
    assert (by_id.error_code, by_id.name, by_id.topic_id) == (DENIED, None, topic_id)
    [unknown] = ask_metadata(rig, named(name=None, topic_id=b"x" * 16))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_asking_for_a_topic_creates_it_only_for_who_may(rig: Guarded) -> None:
    rig.allow(Operation.DESCRIBE, "new", pattern=PatternType.PREFIXED)
    named = metadata.MetadataRequestTopic
    [refused] = ask_metadata(rig, named(name="new-1"), allow_auto_topic_creation=True)
    assert (refused.error_code, refused.topic_id) == (DENIED, ZERO)
    assert "new-1" not in rig.node.broker.image.topics
    rig.allow(Operation.CREATE, "new-1")
    [made] = ask_metadata(rig, named(name="new-1"), allow_auto_topic_creation=True)
    assert made.error_code == 0 and "new-1" in rig.node.broker.image.topics


def test_pages_of_topics_name_no_hidden_ones(rig: Guarded) -> None:
    for name in ("a-open", "b-secret", "c-open"):
        rig.create(name)
    for name in ("a-open", "c-open"):
        rig.allow(Operation.READ, name)
    messages = describe_topic_partitions
    request = messages.DescribeTopicPartitionsRequest(response_partition_limit=1)
    page = rig.ask(messages, request, session=rig.alice())
    assert [topic.name for topic in page.topics] == ["a-open"]
    assert page.next_cursor.topic_name == "c-open"
    asked = [messages.TopicRequest(name) for name in ("b-secret", "c-open", "d")]
    request = messages.DescribeTopicPartitionsRequest(asked, 100)
    answer = rig.ask(messages, request, session=rig.alice())
    found = {topic.name: (topic.error_code, topic.topic_id != ZERO) for topic in answer.topics}
    assert found == {"c-open": (0, True), "b-secret": (DENIED, False), "d": (DENIED, False)}
    assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    wrong = messages.DescribeTopicPartitionsRequest([], 100, messages.Cursor("a", -1))
    assert rig.ask(messages, wrong, session=rig.alice()).topics == []


def test_deleting_tells_no_names_of_ids(rig: Guarded) -> None:
    secret, seen = rig.create("secrets"), rig.create("orders")
    rig.allow(Operation.DESCRIBE, "orders")
    rig.allow(Operation.DESCRIBE, "gone")
    states = [
        delete_topics.DeleteTopicState(None, secret),
        delete_topics.DeleteTopicState(None, seen),
        delete_topics.DeleteTopicState("secrets"),
        delete_topics.DeleteTopicState("orders"),
        delete_topics.DeleteTopicState("gone"),
        delete_topics.DeleteTopicState("elsewhere"),
        delete_topics.DeleteTopicState(None, b"x" * 16),
    ]
    request = delete_topics.DeleteTopicsRequest(states, [], 1000)
    answer = rig.ask(delete_topics, request, session=rig.alice())
    found = {(one.name, one.topic_id): one.error_code for one in answer.responses}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {
        (None, secret): DENIED,
        ("orders", seen): DENIED,
        ("secrets", ZERO): DENIED,
        ("orders", ZERO): DENIED,
        ("gone", ZERO): unknown,
        ("elsewhere", ZERO): DENIED,
        (None, b"x" * 16): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert set(rig.node.broker.image.topics) >= {"secrets", "orders"}


def test_a_new_topics_settings_are_shown_to_who_may_see_them(rig: Guarded) -> None:
    rig.allow(Operation.CREATE, "mine")
    request = create_topics.CreateTopicsRequest(
        [create_topics.CreatableTopic("mine", 2, 1), create_topics.CreatableTopic("other", 1, 1)],
        1000,
    )
    made, refused = rig.ask(create_topics, request, session=rig.alice()).topics
    assert (made.error_code, made.num_partitions, made.configs) == (0, -1, [])
    assert made.topic_config_error_code == DENIED and made.topic_id != ZERO
    assert (refused.name, refused.error_code) == ("other", DENIED)
    assert refused.error_message == "Authorization failed."


def test_operations_in_answers_are_those_that_are_allowed(rig: Guarded) -> None:
    rig.create("orders")
    rig.ask(find_coordinator, find_coordinator.FindCoordinatorRequest("g", 0, ["g"]))
    rig.allow(Operation.WRITE, "orders")
    rig.allow(Operation.ALTER_CONFIGS, "orders")
    rig.allow(Operation.READ, "g", GROUP)
    named = metadata.MetadataRequestTopic(name="orders")
    [topic] = ask_metadata(rig, named, include_topic_authorized_operations=True)
    assert topic.topic_authorized_operations == 1 << 4 | 1 << 8 | 1 << 10 | 1 << 11
    request = describe_groups.DescribeGroupsRequest(["g"], True)
    [group] = rig.ask(describe_groups, request, version=5, session=rig.alice()).groups
    assert group.authorized_operations == 1 << 3 | 1 << 8
    everything = rig.ask(describe_groups, request, version=5).groups[0].authorized_operations
    assert everything == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def test_offsets_of_hidden_topics_are_left_out(rig: Guarded) -> None:
    for name in ("orders", "secrets"):
        rig.create(name)
    rig.ask(find_coordinator, find_coordinator.FindCoordinatorRequest("g", 0, ["g"]))
    rig.allow(Operation.DESCRIBE, "g", GROUP)
    rig.allow(Operation.DESCRIBE, "orders")
    wanted = [
        offset_fetch.OffsetFetchRequestTopics(name, ZERO, [0])
        for name in ("orders", "secrets", "nowhere")
    ]
    group = offset_fetch.OffsetFetchRequestGroup("g", None, -1, wanted)
    request = offset_fetch.OffsetFetchRequest(groups=[group])
    [answer] = rig.ask(offset_fetch, request, version=9, session=rig.alice()).groups
    found = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert found == {"orders": 0, "secrets": DENIED, "nowhere": DENIED}


# --- patterns of topics (KIP-848)


def heartbeat(
    rig: Guarded, session: Session, member: str, epoch: int, regex: str | None = None
) -> Any:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", member, epoch)
    request.rebalance_timeout_ms = 10_000
    if epoch == 0:
        request.subscribed_topic_regex = regex
        request.topic_partitions = []
    return rig.ask(consumer_group_heartbeat, request, version=1, session=session)


def assigned(rig: Guarded, answer: Any) -> set[str]:
    by_id = rig.node.broker.image.topics_by_id
    return {by_id[part.topic_id].name for part in answer.assignment.topic_partitions}


def test_a_pattern_matches_only_topics_that_the_member_may_describe(tmp_path: Path) -> None:
    rig = Guarded(tmp_path / "data", group_consumer_assignment_interval_ms=0)
    for name in ("o-open", "o-secret"):
        rig.create(name)
    rig.ask(find_coordinator, find_coordinator.FindCoordinatorRequest("g", 0, ["g"]))
    rig.allow(Operation.READ, "g", GROUP)
    rig.allow(Operation.READ, "o-open")
    alice = rig.alice()
    joined = heartbeat(rig, alice, "m" * 22, 0, "o-.*")
    assert joined.error_code == 0 and assigned(rig, joined) == {"o-open"}
    rig.allow(Operation.READ, "o-secret")
    more = heartbeat(rig, alice, "m" * 22, joined.member_epoch)
    assert assigned(rig, more) == {"o-open", "o-secret"}, "rights count from the next heartbeat"
    messages = consumer_group_describe
    request = messages.ConsumerGroupDescribeRequest(["g"], True)
    [group] = rig.ask(messages, request, session=alice).groups
    assert group.error_code == 0
    rig.take_away(Operation.READ)
    rig.allow(Operation.DESCRIBE, "g", GROUP)
    rig.allow(Operation.DESCRIBE, "o-open")
    [group] = rig.ask(messages, request, session=alice).groups
    assert (group.error_code, group.members) == (DENIED, [])


# --- without an authorizer


def test_without_an_authorizer_nothing_is_asked(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    assert rig.node.authorizer is None
    assert rig.node.broker.authorizer is None and rig.node.controller.authorizer is None
    rig.create("orders")
    session = rig.connect()
    session.principal = Principal("User", "alice")
    assert rig.produce("orders", "x", session=session).error_code == 0
    frame = b"".join(encode_request(metadata, 12, 1, "c", metadata.MetadataRequest(None)))
    assert rig.node.dispatch.feed(session, memoryview(bytearray(frame)), len(frame)) == len(frame)
