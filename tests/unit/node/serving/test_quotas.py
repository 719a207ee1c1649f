"""Whose limit counts, and how many are measured at a time."""

import pytest

from headrace.environment import Now
from headrace.node.serving import quotas as module
from headrace.node.serving.quotas import ClientQuotas, QuotaLimits
from headrace.node.serving.session import Session

KEY = "producer_byte_rate"


def entity(**parts):
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in parts.items()))


# Apache Kafka's order of precedence, the most specific first, and with whom a limit is shared.
LEVELS = [
    (entity(client_id="web", user="ann"), ("ann", "web")),
    (entity(client_id=None, user="ann"), ("ann", "web")),
    (entity(user="ann"), ("ann", "")),
    (entity(client_id="web", user=None), ("ann", "web")),
    (entity(client_id=None, user=None), ("ann", "web")),
    (entity(user=None), ("ann", "")),
    (entity(client_id="web"), ("", "web")),
    (entity(client_id=None), ("", "web")),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_limit_counts(first):
    table = {who: {KEY: float(at + 1)} for at, (who, _) in enumerate(LEVELS) if at >= first}
    table[entity(user="bob")] = {KEY: 99.0}
    assert QuotaLimits(table, KEY).find("ann", "web") == (LEVELS[first][1], first + 1)


def test_who_has_no_limit_is_not_measured():
    limits = QuotaLimits({entity(user="bob"): {KEY: 1.0}, entity(user="ann"): {"other": 1.0}}, KEY)
    assert limits.find("ann", "web") is None
    assert not QuotaLimits({entity(user="ann"): {"other": 1.0}}, KEY)


def test_a_client_without_a_name_has_the_limits_of_its_user_only():
    table = {entity(client_id=None): {KEY: 1.0}, entity(client_id=None, user=None): {KEY: 2.0}}
    assert QuotaLimits(table, KEY).find("ann", "") is None
    table[entity(user=None)] = {KEY: 3.0}
    assert QuotaLimits(table, KEY).find("ann", "") == (("ann", ""), 3.0)


@pytest.fixture
def now():
    return Now(0, 0)


def quotas_for(now, limits, stopwatch=None):
    quotas = ClientQuotas(
        now,
        samples=11,
        sample_ms=1_000,
        mutation_samples=11,
        mutation_sample_ms=1_000,
        stopwatch=stopwatch,
    )
    assert quotas.follow(limits) is bool(limits)
    return quotas


def frame_of(client_id, size=100):
    head = bytes(8) + len(client_id).to_bytes(2, "big") + client_id.encode()
    return memoryview(head.ljust(size, b"\0"))


def test_as_many_are_measured_as_the_bound_says(now, monkeypatch):
    """Names are the client's to choose: a million of them are no million windows."""
    monkeypatch.setattr(module, "MOST_TRACKED", 50)
    quotas = quotas_for(now, {entity(client_id=None): {KEY: 1.0}})
    session = Session("10.0.0.1", "PLAINTEXT")
    for number in range(500):
        quotas.meter(session, frame_of(f"client-{number}")).finish(0)
    assert len(quotas.produce) == 50
    assert quotas.meter(session, frame_of("client-499")).finish(0) > 0, "the last ones are known"


def test_time_is_a_percentage_of_one_thread_and_waiting_takes_none(now):
    clock = [0]
    limits = {entity(user=None): {"request_percentage": 10.0}}
    quotas = quotas_for(now, limits, lambda: clock[0])
    session = Session("10.0.0.1", "PLAINTEXT")
    meter = quotas.meter(session, frame_of("web"))
    clock[0] += 900_000_000  # 0.9 s of ten, that is 9 %
    assert meter.finish(3) == 0
    waiting = quotas.meter(session, frame_of("web"))
    waiting.waits()
    clock[0] += 60_000_000_000
    assert waiting.finish(11) == 0
    greedy = quotas.meter(session, frame_of("web"))
    clock[0] += 2_000_000_000
    assert greedy.finish(3) == 1_000, "never longer than a sample, as Apache Kafka does"
    assert quotas.request.throttled == 1


def test_what_brokers_ask_of_each_other_is_exempt(now):
    clock = [0]
    quotas = quotas_for(now, {entity(user=None): {"request_percentage": 0.001}}, lambda: clock[0])
    meter = quotas.meter(Session("10.0.0.1", "PLAINTEXT"), frame_of("web"))
    clock[0] += 2_000_000_000
    assert meter.finish(27) == 0


def test_a_changed_limit_holds_at_once_for_what_was_measured_before(now):
    quotas = quotas_for(now, {entity(user=None): {KEY: 1.0}})
    session = Session("10.0.0.1", "PLAINTEXT")
    assert quotas.meter(session, frame_of("web", 1_000)).finish(0) > 0
    quotas.follow({entity(user=None): {KEY: 1_000_000.0}})
    assert quotas.meter(session, frame_of("web", 1_000)).finish(0) == 0
    quotas.follow({entity(user=None): {KEY: 100.0}})
    assert quotas.meter(session, frame_of("web", 1_000)).finish(0) == 20_000
    assert not quotas.follow({})
