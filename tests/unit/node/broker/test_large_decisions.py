"""Many topics, partitions or settings in one request: decided in slices, written in one step.

In these stories each turn of the loop brings such a request one step further, so others can decide
something meanwhile.
"""

import json

import pytest

from headrace.node.consensus.batches import batches_in
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    create_partitions,
    create_topics,
    incremental_alter_configs,
    metadata,
)
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
)
from tests.unit.node.broker.rig import WAITS, Rig

E = ErrorCode
MANY = 100  # topics of one partition, twice as many records


@pytest.fixture(autouse=True)
def large_from_fewer_records(monkeypatch):
    """Than the five hundred of the product: so many are the slow part of these stories."""
    for module in ("topics", "configurations"):
        monkeypatch.setattr(f"headrace.node.controller.{module}.LARGE_FROM", 2 * MANY)


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path / "data", open_files=1_000)
    rig.slowly = True
    return rig


def names(count=MANY, prefix="t"):
    return [f"{prefix}{number}" for number in range(count)]


def ask_to_create(rig, topics, partitions=1):
    """The session that the answer will come on; nothing is decided yet."""
    wanted = [create_topics.CreatableTopic(name, partitions, -1) for name in topics]
    request = create_topics.CreateTopicsRequest(wanted, 60_000)
    session = rig.connect()
    assert rig.ask(create_topics, request, session=session) == WAITS
    return session


def answers(rig, session, messages=create_topics):
    finish(rig, session)
    return rig.answer_on(session, messages)


def finish(rig, session):
    rig.slowly = False
    rig.until_idle()
    assert session.outbox


def codes(answer):
    return {topic.name: topic.error_code for topic in answer.topics}


def batches_of_metadata(rig):
    log = rig.node.controller.log.log
    found = log.read(0, 1 << 24, up_to=log.end_offset, at_least_one=True)
    return list(batches_in(memoryview(found.file.read(found.length, found.position))))


def test_nobody_sees_a_part_and_others_are_served(rig):
    session = ask_to_create(rig, names())
    for _ in range(MANY // 4):
        rig.until_idle()
    assert not rig.node.controller.image.topics, "many steps, and nothing is decided yet"
    answer = answers(rig, session)
    assert set(codes(answer).values()) == {E.NONE}
    assert set(rig.node.broker.topics.by_name) == set(names())
    written = [batch for batch in batches_of_metadata(rig) if len(batch.records) >= MANY]
    assert [len(batch.records) for batch in written] == [2 * MANY], "one batch has all of it"


def test_a_name_that_another_request_takes_meanwhile_is_refused(rig):
    session = ask_to_create(rig, names())
    for _ in range(3 * MANY // 4):
        rig.until_idle()
    rig.slowly = False
    rig.node.controller.create_topics(
        create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t7", 3, -1)]), rig.now
    )
    found = codes(answers(rig, session))
    assert found.pop("t7") == E.TOPIC_ALREADY_EXISTS
    assert set(found.values()) == {E.NONE}
    assert len(rig.node.broker.topics.by_name["t7"].replicas) == 3, "the first one has it"


def test_of_two_large_requests_for_one_name_the_first_has_it(rig):
    first = ask_to_create(rig, names(), partitions=1)
    second = ask_to_create(rig, names(prefix="t"), partitions=2)
    finish(rig, first)
    assert set(codes(rig.answer_on(first, create_topics)).values()) == {E.NONE}
    found = codes(rig.answer_on(second, create_topics))
    assert set(found.values()) == {E.TOPIC_ALREADY_EXISTS}
    assert len(rig.node.broker.topics.by_name["t0"].replicas) == 1


def test_it_is_done_also_where_something_else_is_decided_all_the_time(rig):
    session = ask_to_create(rig, names())
    turns = 0
    while not rig.node.controller.image.topics.keys() >= {"t0"}:
        turns += 1
        rig.until_idle()
        rig.node.controller.allocate_producer_ids(1, rig.node.controller.broker_epoch, rig.now)
    assert turns > 2.5 * MANY, "it was begun again several times"
    assert set(codes(answers(rig, session)).values()) == {E.NONE}


def test_what_was_prepared_is_what_a_start_reads(rig, tmp_path):
    session = ask_to_create(rig, names())
    rig.slowly = False
    rig.until_idle()
    more = create_partitions.CreatePartitionsTopic("t3", 200, None)
    request = create_partitions.CreatePartitionsRequest([more], 60_000)
    grown = rig.connect()
    rig.ask(create_partitions, request, session=grown)
    finish(rig, session)
    image = rig.node.controller.image
    rig.stop()
    again = Rig(tmp_path / "data", open_files=1_000).node.controller.image
    assert again.topics.keys() == image.topics.keys()
    assert {t.name: t.id for t in again.topics.values()} == {
        t.name: t.id for t in image.topics.values()
    }
    assert len(again.topics["t3"].partitions) == 200
    assert again.topics_by_id.keys() == image.topics_by_id.keys()


def test_many_partitions_are_added_at_once_or_not_at_all(rig):
    rig.slowly = False
    rig.create("wide")
    rig.slowly = True
    more = create_partitions.CreatePartitionsTopic("wide", 301, None)
    other = create_partitions.CreatePartitionsTopic("absent", 2, None)
    session = rig.connect()
    request = create_partitions.CreatePartitionsRequest([more, other], 60_000)
    assert rig.ask(create_partitions, request, session=session) == WAITS
    for _ in range(50):
        rig.until_idle()
    assert len(rig.node.controller.image.topics["wide"].partitions) == 1
    found = {r.name: r.error_code for r in answers(rig, session, create_partitions).results}
    assert found == {"wide": E.NONE, "absent": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(rig.node.broker.topics.by_name["wide"].replicas) == 301


def test_many_settings_are_changed_in_one_batch(rig):
    answers(rig, ask_to_create(rig, names()))
    rig.slowly = True
    changes = [AlterableConfig("retention.ms", 0, "1000000"), AlterableConfig("segment.ms", 0, "9")]
    resources = [AlterConfigsResource(2, name, changes) for name in names()]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources)
    session = rig.connect()
    assert rig.ask(incremental_alter_configs, request, session=session) == WAITS
    answer = answers(rig, session, incremental_alter_configs)
    assert {result.error_code for result in answer.responses} == {E.NONE}
    assert rig.node.controller.image.configs[2, "t9"]["segment.ms"] == "9"
    assert len(batches_of_metadata(rig)[-1].records) == 2 * MANY
    [leader] = rig.node.broker.topics.by_name["t9"].replicas
    assert leader.log.settings.segment_ms == 9


def test_more_records_than_a_batch_may_have_are_refused_as_apache_kafka_does(rig):
    rig.slowly = False
    answer = rig.ask(
        create_topics,
        create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(name, 1, -1) for name in names(5_001)], 60_000
        ),
    )
    assert set(codes(answer).values()) == {E.POLICY_VIOLATION}
    request = metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=name) for name in names(5_001)]
    )
    request.allow_auto_topic_creation = True
    unknown = rig.ask(metadata, request, version=9)
    assert set(codes(unknown).values()) == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert not rig.node.controller.image.topics


def test_many_names_that_are_asked_for_are_made_and_described(rig):
    wanted = [metadata.MetadataRequestTopic(name=name) for name in [*names(), "not legal"]]
    request = metadata.MetadataRequest(wanted)
    request.allow_auto_topic_creation = True
    session = rig.connect()
    assert rig.ask(metadata, request, session=session, version=9) == WAITS
    rig.slowly = False
    rig.until_idle()
    found = rig.answer_on(session, metadata, 9)
    assert codes(found) == {"not legal": E.INVALID_TOPIC_EXCEPTION} | dict.fromkeys(names(), 0)
    assert {len(topic.partitions) for topic in found.topics} == {0, 1}


def test_a_large_request_is_audited_once(tmp_path):
    rig = Rig(tmp_path / "data", open_files=1_000, headrace_audit="log")
    rig.node.auditor.take()
    rig.slowly = True
    answers(rig, ask_to_create(rig, names()))
    noted = [json.loads(line) for line in rig.node.auditor.take()]
    assert [line["api"] for line in noted] == ["CreateTopics"]
    assert "times" not in noted[0]
