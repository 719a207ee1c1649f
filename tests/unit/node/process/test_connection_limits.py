"""Who may come in: numbers and rates, of the node, of listeners and of addresses."""

import pytest

from headrace.node.process.listeners import connection_limits
from headrace.node.process.listeners.connection_limits import (
    ConnectionLimits,
    Doorkeeper,
    one_form_of,
    settings_of_listeners,
)


def keeper(**limits):
    return Doorkeeper(
        ConnectionLimits(
            **{"connections": 100, "connections_per_address": 50, "idle_ms": 1, **limits}
        )
    )


def enter(door, count, listener="PLAIN", host="10.0.0.1", now_ms=0):
    """How many of them were let in."""
    entered = 0
    for _ in range(count):
        if door.refusal(listener, host) is None:
            door.entered(listener, host, now_ms)
            entered += 1
    return entered


def test_the_node_takes_as_many_as_it_may():
    door = keeper(connections=3)
    assert enter(door, 5) == 3
    assert "all 3 connections" in door.refusal("PLAIN", "10.0.0.9")
    door.left("PLAIN", "10.0.0.1")
    assert enter(door, 5, host="10.0.0.9") == 1


def test_an_address_has_a_bound_and_single_ones_have_others():
    door = keeper(connections_per_address=2, of_addresses={"10.0.0.7": 4, "0:0:0:0:0:0:0:1": 1})
    assert enter(door, 9, host="10.0.0.1") == 2
    assert enter(door, 9, host="10.0.0.7") == 4
    assert enter(door, 9, host="::1") == 1, "however the address is written"


def test_a_listener_has_a_bound_of_its_own():
    door = keeper(of_listeners={"OUTSIDE": 2})
    assert enter(door, 9, listener="OUTSIDE") == 2
    assert enter(door, 9, listener="INSIDE") == 9
    door.left("OUTSIDE", "10.0.0.1")
    assert enter(door, 9, listener="OUTSIDE") == 1


def test_a_changed_bound_holds_for_those_who_come():
    door = keeper()
    assert enter(door, 10) == 10
    door.change(ConnectionLimits(connections=5, connections_per_address=5, idle_ms=1))
    assert enter(door, 1, host="10.0.0.2") == 0


def test_a_listener_rests_when_too_many_come_per_second():
    door = keeper(rate=2)
    waits = [door.entered("PLAIN", "10.0.0.1", 0) for _ in range(30)]
    assert waits[:20] == [0] * 20, "two a second, over ten seconds"
    assert waits[20] == 500
    assert waits[29] == 1_000, "never longer than a sample"
    assert door.entered("PLAIN", "10.0.0.1", 60_000) == 0


def test_only_the_listener_with_a_rate_rests():
    door = keeper(rates_of_listeners={"OUTSIDE": 1})
    outside = [door.entered("OUTSIDE", "10.0.0.1", 0) for _ in range(12)]
    inside = [door.entered("INSIDE", "10.0.0.1", 0) for _ in range(12)]
    assert outside[-1] > 0 and inside == [0] * 12


def quota(address, rate):
    return {(("ip", address),): {"connection_creation_rate": rate}}


def test_an_address_that_comes_too_often_waits_and_does_not_count():
    door = keeper()
    door.follow({**quota("10.0.0.1", 1.0), (("user", None),): {"producer_byte_rate": 1.0}})
    waits = [door.address_wait_ms("10.0.0.1", 0) for _ in range(100)]
    assert waits[:10] == [0] * 10 and all(waits[10:])
    assert door.address_wait_ms("10.0.0.2", 0) == 0
    assert door.address_wait_ms("::ffff:10.0.0.1", 1) > 0, "the same machine on a newer socket"
    assert door.address_wait_ms("10.0.0.1", 11_000) == 0, "only those let in count"


def test_the_default_is_for_each_address_by_itself():
    door = keeper()
    door.follow({**quota(None, 1.0), **quota("10.0.0.7", 5.0)})
    for host in ("10.0.0.1", "10.0.0.2"):
        assert sum(door.address_wait_ms(host, 0) == 0 for _ in range(50)) == 10
    assert sum(door.address_wait_ms("10.0.0.7", 0) == 0 for _ in range(80)) == 50
    door.follow({})
    assert door.address_wait_ms("10.0.0.1", 0) == 0


def test_addresses_are_measured_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(connection_limits, "MOST_ADDRESSES", 10)
    door = keeper()
    door.follow(quota(None, 1.0))
    for number in range(1_000):
        door.address_wait_ms(f"10.0.{number // 256}.{number % 256}", 0)
    assert len(door._address_rates) == 10


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("some-host", "some-host"),
    ],
)
def test_addresses_have_one_form(written, form):
    assert one_form_of(written) == form


def test_settings_of_listeners_come_from_the_first_layer_that_has_them():
    layers = [
        {"listener.name.outside.max.connections": "7"},
        {"listener.name.outside.max.connections": "9", "listener.name.inside.max.connections": "x"},
    ]
    found = settings_of_listeners(layers, ["OUTSIDE", "INSIDE"], "max.connections")
    assert found == {"OUTSIDE": 7}
