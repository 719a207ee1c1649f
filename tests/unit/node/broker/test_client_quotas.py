"""Quotas as clients meet them: told to wait, not read meanwhile, and then read again."""

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.framing import encode_request
from headrace.wire.protocol.messages import (
    alter_client_quotas,
    create_partitions,
    create_topics,
    describe_client_quotas,
    fetch,
    find_coordinator,
    metadata,
    offset_commit,
    produce,
)
from tests.unit.node.broker.replicas.test_followers import Leading
from tests.unit.node.broker.rig import WAITS, Rig, build, fetch_request, values_in

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
CHANGES, TIME = "controller_mutation_rate", "request_percentage"


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path / "data")


def alter(rig, entity, *, version=1, validate_only=False, **limits):
    """None removes; answers the codes of the entities."""
    parts = [
        alter_client_quotas.EntityData(kind.replace("_", "-"), n) for kind, n in entity.items()
    ]
    ops = [
        alter_client_quotas.OpData(key, 0.0 if value is None else float(value), value is None)
        for key, value in limits.items()
    ]
    entry = alter_client_quotas.RequestEntryData(parts, ops)
    request = alter_client_quotas.AlterClientQuotasRequest([entry], validate_only)
    [answer] = rig.ask(alter_client_quotas, request, version=version).entries
    return answer.error_code


def limit(rig, **limits):
    assert alter(rig, {"user": None}, **limits) == 0


def produce_request(topic, data, acks=-1):
    parts = [produce.PartitionProduceData(0, data)]
    return produce.ProduceRequest(
        None, acks, 1_000, [produce.TopicProduceData(topic, bytes(16), parts)]
    )


def send(rig, session, messages, request, version, count=1):
    """Frames as a client sends them, all at once; how many bytes were taken."""
    pieces = encode_request(messages, version, 7, "rig", request)
    data = bytearray(b"".join(bytes(piece) for piece in pieces) * count)
    taken = rig.node.dispatch.feed(session, memoryview(data), len(data))
    rig.until_idle()
    return taken * count // len(data)


# ---- produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("acks", [1, -1])
def test_who_produces_too_much_is_told_to_wait_and_not_read(rig, version, acks):
    rig.create("orders")
    limit(rig, **{PRODUCE: 1_000})
    session = rig.connect()
    big = produce_request("orders", build(["x" * 20_000], rig.now.wall_ms), acks)
    assert send(rig, session, produce, big, version) == 1
    answer = rig.answer_on(session, produce, version)
    assert answer.responses[0].partition_responses[0].error_code == 0, "what was sent is kept"
    assert 9_000 < answer.throttle_time_ms < 11_000
    assert session.muted
    assert send(rig, session, metadata, metadata.MetadataRequest([], False), 12) == 0
    rig.advance(answer.throttle_time_ms - 1)
    assert session.muted
    rig.advance(1)
    assert not session.muted and rig.node.dispatch.resumed == [session]
    assert send(rig, session, metadata, metadata.MetadataRequest([], False), 12) == 1


def test_recognized_requests_are_measured_too(rig):
    """The short way of repeated requests must not be a way around a quota."""
    rig.create("orders")
    limit(rig, **{PRODUCE: 1_000})
    session = rig.connect()
    request = produce_request("orders", build(["x" * 3_000], rig.now.wall_ms))
    throttles = []
    for _ in range(4):
        assert send(rig, session, produce, request, 12) == 1
        throttles.append(rig.answer_on(session, produce, 12).throttle_time_ms)
    assert session.remembered is not None
    assert throttles[:3] == [0, 0, 0] and 0 < throttles[3] < 3_000, throttles
    assert session.muted


def test_no_more_of_what_was_sent_ahead_is_taken_than_the_quota_allows(rig):
    rig.create("orders")
    limit(rig, **{PRODUCE: 1_000})
    session = rig.connect()
    request = produce_request("orders", build(["x" * 6_000], rig.now.wall_ms))
    assert send(rig, session, produce, request, 12, count=10) == 2


def test_without_an_answer_the_wait_is_the_same(rig):
    rig.create("orders")
    limit(rig, **{PRODUCE: 1_000})
    session = rig.connect()
    request = produce_request("orders", build(["x" * 20_000], rig.now.wall_ms), acks=0)
    assert send(rig, session, produce, request, 12) == 1
    assert not session.outbox and session.muted


def test_a_connection_that_goes_while_it_waits_leaves_nothing_behind(rig):
    rig.create("orders")
    limit(rig, **{PRODUCE: 1_000})
    session = rig.connect()
    request = produce_request("orders", build(["x" * 20_000], rig.now.wall_ms))
    send(rig, session, produce, request, 12)
    assert rig.node.purgatory.waiting == 1
    rig.node.dispatch.forget(session)
    assert rig.node.purgatory.waiting == 0
    rig.advance(60_000)
    assert rig.node.dispatch.resumed == []


def test_a_removed_quota_leaves_no_measuring_behind(rig):
    rig.create("orders")
    limit(rig, **{PRODUCE: 1})
    assert rig.node.dispatch.quotas is not None
    limit(rig, **{PRODUCE: None})
    assert rig.node.dispatch.quotas is None
    session = rig.connect()
    request = produce_request("orders", build(["x" * 20_000], rig.now.wall_ms))
    send(rig, session, produce, request, 12)
    assert rig.answer_on(session, produce, 12).throttle_time_ms == 0


def test_quotas_survive_a_restart(rig):
    limit(rig, **{PRODUCE: 1_000})
    rig.stop()
    again = Rig(rig.folder)
    assert again.node.dispatch.quotas is not None
    assert describe(again) == [([("user", None)], {PRODUCE: 1_000.0})]


# ---- fetch --------------------------------------------------------------------------------------


def fill(rig, batches, size=1_000):
    rig.create("orders")
    for number in range(batches):
        rig.produce("orders", str(number).rjust(size))


def ask_fetch(rig, session, offset=0, **options):
    return rig.ask(fetch, fetch_request("orders", offset, **options), version=12, session=session)


def test_who_fetches_too_much_gets_an_answer_without_records(rig):
    fill(rig, 12)
    limit(rig, **{FETCH: 500})
    session = rig.connect()
    first = ask_fetch(rig, session)
    assert first.throttle_time_ms == 0
    found = values_in(first.responses[0].partitions[0].records)
    assert len(found) == 4, "no more at a time than ten seconds' worth"
    emptied = ask_fetch(rig, session, 4)
    assert emptied.responses == [] and 0 < emptied.throttle_time_ms <= 10_000
    assert session.muted
    again = ask_fetch(rig, rig.connect(), 4)
    assert again.throttle_time_ms == emptied.throttle_time_ms, "what was not sent does not count"
    rig.advance(emptied.throttle_time_ms)
    assert not session.muted
    later = ask_fetch(rig, session, 4)
    while later.throttle_time_ms:
        rig.advance(later.throttle_time_ms)
        later = ask_fetch(rig, session, 4)
    assert values_in(later.responses[0].partitions[0].records)[0] == b"4".rjust(1_000)


def test_a_batch_that_is_above_the_quota_alone_goes_out_and_the_wait_comes_after(rig):
    """Otherwise its reader would never get past it."""
    fill(rig, 1, size=50_000)
    limit(rig, **{FETCH: 500})
    session = rig.connect()
    answer = ask_fetch(rig, session)
    assert len(values_in(answer.responses[0].partitions[0].records)) == 1
    assert answer.throttle_time_ms > 60_000
    assert session.muted


def test_a_throttled_first_fetch_opens_no_session_and_a_later_one_keeps_it(rig):
    fill(rig, 12)
    limit(rig, **{FETCH: 500})
    session = rig.connect()
    opening = fetch_request("orders", 0)
    opening.session_epoch = 0
    answer = rig.ask(fetch, opening, version=12, session=session)
    assert answer.session_id != 0 and answer.responses
    known = answer.session_id
    going_on = fetch_request("orders", 4)
    going_on.session_id, going_on.session_epoch = known, 1
    emptied = rig.ask(fetch, going_on, version=12, session=session)
    assert emptied.session_id == known and emptied.throttle_time_ms > 0 and not emptied.responses
    other = rig.connect()
    opening.session_id = 0
    refused = rig.ask(fetch, opening, version=12, session=other)
    assert refused.session_id == 0 and refused.throttle_time_ms > 0
    assert len(rig.node.broker.fetch_sessions) == 1
    rig.advance(30_000)
    nothing_new = fetch_request("orders", 4)
    nothing_new.topics = []
    nothing_new.session_id, nothing_new.session_epoch = known, 2
    answer = rig.ask(fetch, nothing_new, version=12, session=session)
    assert values_in(answer.responses[0].partitions[0].records)[0] == b"4".rjust(1_000)


def test_a_limit_for_everybody_does_not_hold_for_followers(tmp_path):
    """Or acks=all would be as slow as the slowest consumer is meant to be."""
    rig = Leading(tmp_path)
    for _ in range(2):
        assert rig.produce("orders", "x" * 5_000, acks=1).error_code == 0
    limit(rig, **{FETCH: 10})
    session = rig.connect()
    for _ in range(2):
        assert len(values_in(rig.follow(0, session=session).records)) == 2


def test_a_fetch_that_waits_is_measured_when_it_is_answered(rig):
    rig.create("orders")
    limit(rig, **{FETCH: 100})
    reader = rig.connect()
    assert ask_fetch(rig, reader, max_wait_ms=5_000) == WAITS
    rig.produce("orders", "x" * 3_000)
    answer = rig.answer_on(reader, fetch, 12)
    assert answer.throttle_time_ms > 0 and reader.muted


# ---- changes to topics --------------------------------------------------------------------------


def create(rig, *names, partitions=1, version=7):
    topics = [create_topics.CreatableTopic(name, partitions, 1) for name in names]
    answer = rig.ask(
        create_topics, create_topics.CreateTopicsRequest(topics, 1000), version=version
    )
    return answer.throttle_time_ms, [topic.error_code for topic in answer.topics]


def test_changes_beyond_the_quota_are_refused_one_by_one(rig):
    limit(rig, **{CHANGES: 1})
    throttle_ms, codes = create(rig, "a", partitions=12)
    assert (throttle_ms, codes) == (0, [0]), "what begins above zero is made, overdrawn or not"
    throttle_ms, codes = create(rig, "b", "c")
    assert codes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    assert throttle_ms == 1_000
    rig.advance(1_000)
    assert create(rig, "b", "c") == (1_000, [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED])


def test_older_versions_are_not_refused_but_wait(rig):
    limit(rig, **{CHANGES: 1})
    assert create(rig, "a", partitions=12, version=5) == (1_000, [0])
    assert create(rig, "b", version=5) == (2_000, [0])


def test_deletions_and_new_partitions_count_too(rig):
    rig.create("orders", partitions=20)
    limit(rig, **{CHANGES: 1})
    rig.delete("orders")
    rig.advance(1)
    assert create(rig, "b")[1] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    rig.advance(60_000)
    assert create(rig, "b") == (0, [0])
    more = create_partitions.CreatePartitionsTopic("b", 30, None)
    asked = create_partitions.CreatePartitionsRequest([more], 1_000, False)
    assert rig.ask(create_partitions, asked).results[0].error_code == 0
    more.count = 31
    answer = rig.ask(create_partitions, asked)
    assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms > 0


# ---- time ---------------------------------------------------------------------------------------


def test_whoever_takes_too_much_time_is_told_so_in_every_answer(tmp_path):
    ticks = iter(range(0, 10**15, 3_000_000_000))  # each look at the clock is 3 s later
    rig = Rig(tmp_path / "data", request_clock=lambda: next(ticks))
    limit(rig, **{TIME: 20})
    session = rig.connect()
    answer = rig.ask(metadata, metadata.MetadataRequest([], False), session=session)
    assert answer.throttle_time_ms == 1_000 and session.muted


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_one_clients_wait_is_not_told_to_the_next_who_asks_for_all_topics(tmp_path, version):
    ticks = iter(range(0, 10**15, 3_000_000_000))
    rig = Rig(tmp_path / "data", request_clock=lambda: next(ticks))
    rig.create("orders")
    request = metadata.MetadataRequest([] if version == 0 else None)
    answers = []
    for percent in (None, 20, None):
        limit(rig, **{TIME: percent})
        answers.append(rig.ask(metadata, request, version=version))
    told = 1_000 if version >= 3 else 0  # older answers have no place for it
    assert [answer.throttle_time_ms for answer in answers] == [0, told, 0]
    assert [answer.topics[0].name for answer in answers] == ["orders"] * 3


def test_recognized_commits_are_told_so_too(tmp_path):
    ticks = iter(range(0, 10**15, 3_000_000_000))
    rig = Rig(tmp_path / "data", request_clock=lambda: next(ticks))
    rig.create("orders")
    find = find_coordinator.FindCoordinatorRequest("g", 0, ["g"])
    rig.ask(find_coordinator, find, version=6)
    part = offset_commit.OffsetCommitRequestPartition(0, 5, -1, "")
    topic = offset_commit.OffsetCommitRequestTopic("orders", bytes(16), [part])
    request = offset_commit.OffsetCommitRequest("g", -1, "", None, -1, [topic])
    session = rig.connect()
    answers = []
    for limited in (False, False, True):
        if limited:
            limit(rig, **{TIME: 20})
        answers.append(rig.ask(offset_commit, request, version=9, session=session))
    assert session.remembered.commits.known
    assert [answer.throttle_time_ms for answer in answers] == [0, 0, 1_000]
    assert answers[2].topics == answers[1].topics


# ---- setting and describing ---------------------------------------------------------------------


def describe(rig, *components, strict=False):
    parts = [describe_client_quotas.ComponentData(*component) for component in components]
    answer = rig.ask(
        describe_client_quotas, describe_client_quotas.DescribeClientQuotasRequest(parts, strict)
    )
    if answer.error_code:
        assert answer.entries is None
        return answer.error_code
    return [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


def test_quotas_are_found_by_exact_name_default_and_type(rig):
    assert alter(rig, {"user": "ann"}, **{PRODUCE: 10, FETCH: 20}) == 0
    assert alter(rig, {"user": "ann", "client_id": "web"}, **{PRODUCE: 30}) == 0
    assert alter(rig, {"user": None}, **{PRODUCE: 40}) == 0
    assert alter(rig, {"ip": "10.0.0.1"}, connection_creation_rate=5) == 0
    ann = ([("user", "ann")], {PRODUCE: 10.0, FETCH: 20.0})
    both = ([("client-id", "web"), ("user", "ann")], {PRODUCE: 30.0})
    everybody = ([("user", None)], {PRODUCE: 40.0})
    assert len(describe(rig)) == 4
    assert describe(rig, ("user", 0, "ann")) == [ann, both]
    assert describe(rig, ("user", 0, "ann"), strict=True) == [ann]
    assert describe(rig, ("user", 1, None)) == [everybody]
    assert describe(rig, ("user", 2, None)) == [ann, both, everybody]
    assert describe(rig, ("user", 2, None), ("client-id", 2, None)) == [both]
    assert describe(rig, ("ip", 2, None)) == [
        ([("ip", "10.0.0.1")], {"connection_creation_rate": 5})
    ]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "x"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense_are_refused(rig, components, code):
    assert describe(rig, *components) == code


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({}, {PRODUCE: 1}),
        ({"group": "x"}, {PRODUCE: 1}),
        ({"user": ""}, {PRODUCE: 1}),
        ({"user": "ann", "ip": "10.0.0.1"}, {PRODUCE: 1}),
        ({"ip": "not-an-address"}, {"connection_creation_rate": 1}),
        ({"ip": "10.0.0.1"}, {PRODUCE: 1}),
        ({"user": "ann"}, {"connection_creation_rate": 1}),
        ({"user": "ann"}, {"speed": 1}),
        ({"user": "ann"}, {PRODUCE: 0}),
        ({"user": "ann"}, {PRODUCE: -5}),
        ({"user": "ann"}, {PRODUCE: 1.5}),
        ({"user": "ann"}, {PRODUCE: 1e30}),
        ({"user": "ann"}, {PRODUCE: float("nan")}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2**31}),
    ],
)
def test_limits_that_make_no_sense_are_refused_and_change_nothing(rig, entity, limits):
    assert alter(rig, entity, **limits) == ErrorCode.INVALID_REQUEST
    assert describe(rig) == []


def test_a_dry_run_changes_nothing(rig):
    assert alter(rig, {"user": "ann"}, validate_only=True, **{PRODUCE: 10}) == 0
    assert describe(rig) == []
