"""Quotas as clients meet them: told to wait, not read meanwhile, and then read again."""

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import encode_request
from headrace.protocol.messages import (
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
from tests.unit.broker.bench import PARKED, Bench, build, fetch_request, values_in
from tests.unit.broker.test_followers import Leading

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
CHANGES, TIME = "controller_mutation_rate", "request_percentage"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "data")


def alter(bench, entity, *, version=1, validate_only=False, **limits):
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
    [answer] = bench.ask(alter_client_quotas, request, version=version).entries
    return answer.error_code


def limit(bench, **limits):
    assert alter(bench, {"user": None}, **limits) == 0


def produce_request(topic, data, acks=-1):
    parts = [produce.PartitionProduceData(0, data)]
    return produce.ProduceRequest(
        None, acks, 1_000, [produce.TopicProduceData(topic, bytes(16), parts)]
    )


def send(bench, session, messages, request, version, count=1):
    """Frames as a client sends them, all at once; how many bytes were taken."""
    pieces = encode_request(messages, version, 7, "bench", request)
    data = bytearray(b"".join(bytes(piece) for piece in pieces) * count)
    taken = bench.node.dispatch.feed(session, memoryview(data), len(data))
    bench.settle()
    return taken * count // len(data)


# ---- produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("acks", [1, -1])
def test_who_produces_too_much_is_told_to_wait_and_not_read(bench, version, acks):
    bench.create("orders")
    limit(bench, **{PRODUCE: 1_000})
    session = bench.connect()
    big = produce_request("orders", build(["x" * 20_000], bench.now.wall_ms), acks)
    assert send(bench, session, produce, big, version) == 1
    answer = bench.answer_on(session, produce, version)
    assert answer.responses[0].partition_responses[0].error_code == 0, "what was sent is kept"
    assert 9_000 < answer.throttle_time_ms < 11_000
    assert session.muted
    assert send(bench, session, metadata, metadata.MetadataRequest([], False), 12) == 0
    bench.advance(answer.throttle_time_ms - 1)
    assert session.muted
    bench.advance(1)
    assert not session.muted and bench.node.dispatch.resumed == [session]
    assert send(bench, session, metadata, metadata.MetadataRequest([], False), 12) == 1


def test_recognized_requests_are_measured_too(bench):
    """The short way of repeated requests must not be a way around a quota."""
    bench.create("orders")
    limit(bench, **{PRODUCE: 1_000})
    session = bench.connect()
    request = produce_request("orders", build(["x" * 3_000], bench.now.wall_ms))
    throttles = []
    for _ in range(4):
        assert send(bench, session, produce, request, 12) == 1
        throttles.append(bench.answer_on(session, produce, 12).throttle_time_ms)
    assert session.remembered is not None
    assert throttles[:3] == [0, 0, 0] and 0 < throttles[3] < 3_000, throttles
    assert session.muted


def test_no_more_of_what_was_sent_ahead_is_taken_than_the_quota_allows(bench):
    bench.create("orders")
    limit(bench, **{PRODUCE: 1_000})
    session = bench.connect()
    request = produce_request("orders", build(["x" * 6_000], bench.now.wall_ms))
    assert send(bench, session, produce, request, 12, count=10) == 2


def test_without_an_answer_the_wait_is_the_same(bench):
    bench.create("orders")
    limit(bench, **{PRODUCE: 1_000})
    session = bench.connect()
    request = produce_request("orders", build(["x" * 20_000], bench.now.wall_ms), acks=0)
    assert send(bench, session, produce, request, 12) == 1
    assert not session.outbox and session.muted


def test_a_connection_that_goes_while_it_waits_leaves_nothing_behind(bench):
    bench.create("orders")
    limit(bench, **{PRODUCE: 1_000})
    session = bench.connect()
    request = produce_request("orders", build(["x" * 20_000], bench.now.wall_ms))
    send(bench, session, produce, request, 12)
    assert bench.node.purgatory.waiting == 1
    bench.node.dispatch.forget(session)
    assert bench.node.purgatory.waiting == 0
    bench.advance(60_000)
    assert bench.node.dispatch.resumed == []


def test_a_removed_quota_leaves_no_measuring_behind(bench):
    bench.create("orders")
    limit(bench, **{PRODUCE: 1})
    assert bench.node.dispatch.quotas is not None
    limit(bench, **{PRODUCE: None})
    assert bench.node.dispatch.quotas is None
    session = bench.connect()
    request = produce_request("orders", build(["x" * 20_000], bench.now.wall_ms))
    send(bench, session, produce, request, 12)
    assert bench.answer_on(session, produce, 12).throttle_time_ms == 0


def test_quotas_survive_a_restart(bench):
    limit(bench, **{PRODUCE: 1_000})
    bench.stop()
    again = Bench(bench.folder)
    assert again.node.dispatch.quotas is not None
    assert describe(again) == [([("user", None)], {PRODUCE: 1_000.0})]


# ---- fetch --------------------------------------------------------------------------------------


def fill(bench, batches, size=1_000):
    bench.create("orders")
    for number in range(batches):
        bench.produce("orders", str(number).rjust(size))


def ask_fetch(bench, session, offset=0, **options):
    return bench.ask(fetch, fetch_request("orders", offset, **options), version=12, session=session)


def test_who_fetches_too_much_gets_an_answer_without_records(bench):
    fill(bench, 12)
    limit(bench, **{FETCH: 500})
    session = bench.connect()
    first = ask_fetch(bench, session)
    assert first.throttle_time_ms == 0
    found = values_in(first.responses[0].partitions[0].records)
    assert len(found) == 4, "no more at a time than ten seconds' worth"
    emptied = ask_fetch(bench, session, 4)
    assert emptied.responses == [] and 0 < emptied.throttle_time_ms <= 10_000
    assert session.muted
    again = ask_fetch(bench, bench.connect(), 4)
    assert again.throttle_time_ms == emptied.throttle_time_ms, "what was not sent does not count"
    bench.advance(emptied.throttle_time_ms)
    assert not session.muted
    later = ask_fetch(bench, session, 4)
    while later.throttle_time_ms:
        bench.advance(later.throttle_time_ms)
        later = ask_fetch(bench, session, 4)
    assert values_in(later.responses[0].partitions[0].records)[0] == b"4".rjust(1_000)


def test_a_batch_that_is_above_the_quota_alone_goes_out_and_the_wait_comes_after(bench):
    """Otherwise its reader would never get past it."""
    fill(bench, 1, size=50_000)
    limit(bench, **{FETCH: 500})
    session = bench.connect()
    answer = ask_fetch(bench, session)
    assert len(values_in(answer.responses[0].partitions[0].records)) == 1
    assert answer.throttle_time_ms > 60_000
    assert session.muted


def test_a_throttled_first_fetch_opens_no_session_and_a_later_one_keeps_it(bench):
    fill(bench, 12)
    limit(bench, **{FETCH: 500})
    session = bench.connect()
    opening = fetch_request("orders", 0)
    opening.session_epoch = 0
    answer = bench.ask(fetch, opening, version=12, session=session)
    assert answer.session_id != 0 and answer.responses
    known = answer.session_id
    going_on = fetch_request("orders", 4)
    going_on.session_id, going_on.session_epoch = known, 1
    emptied = bench.ask(fetch, going_on, version=12, session=session)
    assert emptied.session_id == known and emptied.throttle_time_ms > 0 and not emptied.responses
    other = bench.connect()
    opening.session_id = 0
    refused = bench.ask(fetch, opening, version=12, session=other)
    assert refused.session_id == 0 and refused.throttle_time_ms > 0
    assert len(bench.node.broker.fetch_sessions) == 1
    bench.advance(30_000)
    nothing_new = fetch_request("orders", 4)
    nothing_new.topics = []
    nothing_new.session_id, nothing_new.session_epoch = known, 2
    answer = bench.ask(fetch, nothing_new, version=12, session=session)
    assert values_in(answer.responses[0].partitions[0].records)[0] == b"4".rjust(1_000)


def test_a_limit_for_everybody_does_not_hold_for_followers(tmp_path):
    """Or acks=all would be as slow as the slowest consumer is meant to be."""
    bench = Leading(tmp_path)
    for _ in range(2):
        assert bench.produce("orders", "x" * 5_000, acks=1).error_code == 0
    limit(bench, **{FETCH: 10})
    session = bench.connect()
    for _ in range(2):
        assert len(values_in(bench.follow(0, session=session).records)) == 2


def test_a_fetch_that_waits_is_measured_when_it_is_answered(bench):
    bench.create("orders")
    limit(bench, **{FETCH: 100})
    reader = bench.connect()
    assert ask_fetch(bench, reader, max_wait_ms=5_000) == PARKED
    bench.produce("orders", "x" * 3_000)
    answer = bench.answer_on(reader, fetch, 12)
    assert answer.throttle_time_ms > 0 and reader.muted


# ---- changes to topics --------------------------------------------------------------------------


def create(bench, *names, partitions=1, version=7):
    topics = [create_topics.CreatableTopic(name, partitions, 1) for name in names]
    answer = bench.ask(
        create_topics, create_topics.CreateTopicsRequest(topics, 1000), version=version
    )
    return answer.throttle_time_ms, [topic.error_code for topic in answer.topics]


def test_changes_beyond_the_quota_are_refused_one_by_one(bench):
    limit(bench, **{CHANGES: 1})
    throttle_ms, codes = create(bench, "a", partitions=12)
    assert (throttle_ms, codes) == (0, [0]), "what begins above zero is made, overdrawn or not"
    throttle_ms, codes = create(bench, "b", "c")
    assert codes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    assert throttle_ms == 1_000
    bench.advance(1_000)
    assert create(bench, "b", "c") == (1_000, [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED])


def test_older_versions_are_not_refused_but_wait(bench):
    limit(bench, **{CHANGES: 1})
    assert create(bench, "a", partitions=12, version=5) == (1_000, [0])
    assert create(bench, "b", version=5) == (2_000, [0])


def test_deletions_and_new_partitions_count_too(bench):
    bench.create("orders", partitions=20)
    limit(bench, **{CHANGES: 1})
    bench.delete("orders")
    bench.advance(1)
    assert create(bench, "b")[1] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    bench.advance(60_000)
    assert create(bench, "b") == (0, [0])
    more = create_partitions.CreatePartitionsTopic("b", 30, None)
    asked = create_partitions.CreatePartitionsRequest([more], 1_000, False)
    assert bench.ask(create_partitions, asked).results[0].error_code == 0
    more.count = 31
    answer = bench.ask(create_partitions, asked)
    assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms > 0


# ---- time ---------------------------------------------------------------------------------------


def test_whoever_takes_too_much_time_is_told_so_in_every_answer(tmp_path):
    ticks = iter(range(0, 10**15, 3_000_000_000))  # each look at the clock is 3 s later
    bench = Bench(tmp_path / "data", request_clock=lambda: next(ticks))
    limit(bench, **{TIME: 20})
    session = bench.connect()
    answer = bench.ask(metadata, metadata.MetadataRequest([], False), session=session)
    assert answer.throttle_time_ms == 1_000 and session.muted


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_one_clients_wait_is_not_told_to_the_next_who_asks_for_all_topics(tmp_path, version):
    ticks = iter(range(0, 10**15, 3_000_000_000))
    bench = Bench(tmp_path / "data", request_clock=lambda: next(ticks))
    bench.create("orders")
    request = metadata.MetadataRequest([] if version == 0 else None)
    answers = []
    for percent in (None, 20, None):
        limit(bench, **{TIME: percent})
        answers.append(bench.ask(metadata, request, version=version))
    told = 1_000 if version >= 3 else 0  # older answers have no place for it
    assert [answer.throttle_time_ms for answer in answers] == [0, told, 0]
    assert [answer.topics[0].name for answer in answers] == ["orders"] * 3


def test_recognized_commits_are_told_so_too(tmp_path):
    ticks = iter(range(0, 10**15, 3_000_000_000))
    bench = Bench(tmp_path / "data", request_clock=lambda: next(ticks))
    bench.create("orders")
    find = find_coordinator.FindCoordinatorRequest("g", 0, ["g"])
    bench.ask(find_coordinator, find, version=6)
    part = offset_commit.OffsetCommitRequestPartition(0, 5, -1, "")
    topic = offset_commit.OffsetCommitRequestTopic("orders", bytes(16), [part])
    request = offset_commit.OffsetCommitRequest("g", -1, "", None, -1, [topic])
    session = bench.connect()
    answers = []
    for limited in (False, False, True):
        if limited:
            limit(bench, **{TIME: 20})
        answers.append(bench.ask(offset_commit, request, version=9, session=session))
    assert session.remembered.commits.known
    assert [answer.throttle_time_ms for answer in answers] == [0, 0, 1_000]
    assert answers[2].topics == answers[1].topics


# ---- setting and describing ---------------------------------------------------------------------


def describe(bench, *components, strict=False):
    parts = [describe_client_quotas.ComponentData(*component) for component in components]
    answer = bench.ask(
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


def test_quotas_are_found_by_exact_name_default_and_type(bench):
    assert alter(bench, {"user": "ann"}, **{PRODUCE: 10, FETCH: 20}) == 0
    assert alter(bench, {"user": "ann", "client_id": "web"}, **{PRODUCE: 30}) == 0
    assert alter(bench, {"user": None}, **{PRODUCE: 40}) == 0
    assert alter(bench, {"ip": "10.0.0.1"}, connection_creation_rate=5) == 0
    ann = ([("user", "ann")], {PRODUCE: 10.0, FETCH: 20.0})
    both = ([("client-id", "web"), ("user", "ann")], {PRODUCE: 30.0})
    everybody = ([("user", None)], {PRODUCE: 40.0})
    assert len(describe(bench)) == 4
    assert describe(bench, ("user", 0, "ann")) == [ann, both]
    assert describe(bench, ("user", 0, "ann"), strict=True) == [ann]
    assert describe(bench, ("user", 1, None)) == [everybody]
    assert describe(bench, ("user", 2, None)) == [ann, both, everybody]
    assert describe(bench, ("user", 2, None), ("client-id", 2, None)) == [both]
    assert describe(bench, ("ip", 2, None)) == [
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
def test_filters_that_make_no_sense_are_refused(bench, components, code):
    assert describe(bench, *components) == code


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
def test_limits_that_make_no_sense_are_refused_and_change_nothing(bench, entity, limits):
    assert alter(bench, entity, **limits) == ErrorCode.INVALID_REQUEST
    assert describe(bench) == []


def test_a_dry_run_changes_nothing(bench):
    assert alter(bench, {"user": "ann"}, validate_only=True, **{PRODUCE: 10}) == 0
    assert describe(bench) == []
