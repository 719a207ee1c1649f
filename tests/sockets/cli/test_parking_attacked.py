"""Parking and bringing back, as somebody does it who wants records lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.services.backlog import parking as parking_module
from headrace.services.backlog.parking import CannotPark, Parking, Step, store_at
from headrace.services.replay import topic_copy as copying_module
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.cli.groups_behind import (
    add,
    app_that_is_behind,
    commit,
    committed,
    filled,
    handled_until,
)

pytestmark = pytest.mark.integration


@pytest.fixture(params=["rows", "files"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where records are parked."""
    return f"sqlite:///{tmp_path / 'p.db'}" if request.param == "rows" else str(tmp_path / "parked")


def parking_at(headrace: CommandLine) -> Parking:
    return Parking(ClientSettings({"bootstrap.servers": headrace.bootstrap}), sleep=lambda _: None)


def test_what_is_parked_comes_back_as_it_was(
    headrace: CommandLine, place: str, request: pytest.FixtureRequest
) -> None:
    topic = f"whole-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=40)
    words = (topic, "--group", f"{topic}-app")
    assert headrace.json("backlog", "park", *words, "--to", place, "--execute")["parked"] == 40
    assert committed(headrace, f"{topic}-app", topic) == [25, 25]
    shown = headrace.json("backlog", "bring-back", *words, "--from", place)["parked"]
    assert [(each["rows"], each["waiting"]) for each in shown] == [(20, 20), (20, 20)]
    some = headrace.json(
        "backlog", "bring-back", *words, "--from", place, "--key", "k3", "--execute"
    )
    rest = headrace.json("backlog", "bring-back", *words, "--from", place, "--execute")
    assert some["copied"] + rest["copied"] == 40
    assert handled_until(headrace, topic, handled, 40) == list(range(10, 50))
    assert "Nothing of" in headrace.failure("backlog", "bring-back", *words, "--from", place)


def test_hostile_records_come_back_byte_for_byte(headrace: CommandLine, place: str) -> None:
    topic = f"bytes-{'file' if '/parked' in place else 'row'}"
    app_that_is_behind(headrace, topic, done=2, behind=0)
    headrace("topics", "alter", topic, "--config", f"message.timestamp.after.max.ms={2**62}")
    odd = [
        ("a", b"\x00\xff"),
        ("a", b""),
        ("'; DROP TABLE x;--", b"\xf0\x9f"),
        ("\x01\x1b[2J", b"\n"),
    ]
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    far_ms = 253_402_300_800_000 * 10
    for key, value, at_ms in ((None, None, 1), (b"", b"", 1), (b"\x00", b"\xff\xfe", far_ms)):
        producer.produce(
            topic, value, key=key, partition=0, headers=[*odd, ("n", None)], timestamp=at_ms
        )
    assert producer.flush(30) == 0
    parking = parking_at(headrace)
    plan = parking.plan(topic, f"{topic}-app")
    for _ in parking.park(plan, place, by="me"):
        pass
    store = store_at(place, plan.owner)
    found = list(store.waiting({0: 0, 1: 0}))
    assert [(each.key, each.value, each.timestamp_ms) for each in found] == [
        (None, None, 1), (b"", b"", 1), (b"\x00", b"\xff\xfe", far_ms),
    ]  # fmt: skip
    assert found[0].headers == [*odd, ("n", None)]


def test_records_of_a_parking_that_was_given_up_are_not_brought_back(
    headrace: CommandLine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"given-up-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=40)
    monkeypatch.setattr(parking_module, "RECORDS_PER_WRITE", 15)
    parking = parking_at(headrace)
    killed = parking.park(parking.plan(topic, f"{topic}-app"), place, by="me")
    next(killed)
    killed.close()
    # They think better of it: the app reads its backlog itself, and a later one is parked.
    assert handled_until(headrace, topic, handled, 40) == list(range(10, 50))
    add(headrace, topic, 2, range(50, 60))
    words = (topic, "--group", f"{topic}-app")
    headrace("backlog", "park", *words, "--to", place, "--execute")
    handled.clear()
    assert (
        headrace.json("backlog", "bring-back", *words, "--from", place, "--execute")["copied"] == 10
    )
    assert handled_until(headrace, topic, handled, 10) == list(range(50, 60))


def test_an_undone_parking_is_not_brought_back_as_well(headrace: CommandLine, place: str) -> None:
    topic = f"undone-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    words = (topic, "--group", f"{topic}-app")
    headrace("backlog", "park", *words, "--to", place, "--execute")
    headrace("replay", "undo", f"{topic}-app", "--execute")
    assert committed(headrace, f"{topic}-app", topic) == [5, 5]
    assert "Nothing of" in headrace.failure(
        "backlog", "bring-back", *words, "--from", place, "--execute"
    )
    headrace("replay", "undo", f"{topic}-app", "--execute")  # of the undo
    assert (
        headrace.json("backlog", "bring-back", *words, "--from", place, "--execute")["copied"] == 20
    )
    assert handled_until(headrace, topic, handled, 20) == list(range(10, 30))


def test_records_that_came_back_once_can_be_parked_again(headrace: CommandLine, place: str) -> None:
    topic = f"twice-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    group = f"{topic}-app"
    words = (topic, "--group", group)
    headrace("backlog", "park", *words, "--to", place, "--execute")
    headrace("backlog", "bring-back", *words, "--from", place, "--execute")
    assert handled_until(headrace, topic, handled, 20) == list(range(10, 30))
    headrace("replay", "group", group, "--topic", topic, "--from-offset", "0", "--execute")
    assert headrace.json("backlog", "park", *words, "--to", place, "--execute")["parked"] == 30
    assert (
        headrace.json("backlog", "bring-back", *words, "--from", place, "--execute")["copied"] == 30
    )
    handled.clear()
    assert handled_until(headrace, topic, handled, 30) == list(range(30))


def test_a_return_that_is_killed_after_its_last_transaction_sends_nothing_twice(
    headrace: CommandLine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"last-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    group = f"{topic}-app"
    headrace("backlog", "park", topic, "--group", group, "--to", place, "--execute")
    parking = parking_at(headrace)
    store, plan = parking.bring_back_plan(topic, group, place, Selection(), by="me")

    def killed(places: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "mark_brought_back", killed)
    with pytest.raises(KeyboardInterrupt):
        list(parking.bring_back(store, plan, group, Pace()))
    add(headrace, topic, 2, range(30, 34))
    with pytest.raises(CannotPark, match="are being brought back"):
        list(parking.park(parking.plan(topic, group), place, by="me"))
    headrace("backlog", "bring-back", topic, "--group", group, "--from", place, "--execute")
    assert handled_until(headrace, topic, handled, 24) == list(range(10, 34))


def test_a_parking_that_is_killed_behind_its_move_counts(
    headrace: CommandLine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"moved-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    group = f"{topic}-app"
    parking = parking_at(headrace)
    real = parking_module.store_at

    def without_noting(to: str, owner: object) -> object:
        store = real(to, owner)  # type: ignore[arg-type]

        def killed(name: str, *, moved: bool) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(store, "note_moved", killed)
        return store

    monkeypatch.setattr(parking_module, "store_at", without_noting)
    with pytest.raises(KeyboardInterrupt):
        list(parking.park(parking.plan(topic, group), place, by="me"))
    monkeypatch.undo()
    assert committed(headrace, group, topic) == [15, 15]
    words = (topic, "--group", group, "--from", place, "--execute")
    assert headrace.json("backlog", "bring-back", *words)["copied"] == 20
    assert handled_until(headrace, topic, handled, 20) == list(range(10, 30))


def test_a_running_group_is_parked_and_what_it_reads_meanwhile_is_not(
    headrace: CommandLine, place: str
) -> None:
    topic = f"running-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    group = f"{topic}-app"
    consumer = Consumer(
        {"bootstrap.servers": headrace.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    seen: list[int] = []

    def one_more(count: int) -> bool:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None and len(seen) < count:
            seen.append(int(message.value() or b""))
            consumer.commit(message=message, asynchronous=False)
        return len(seen) >= count

    until(lambda: one_more(3))
    parking = parking_at(headrace)
    plan = parking.plan(topic, group)
    assert plan.members == 1
    parked = 0
    for status in parking.park(plan, place, by="me"):
        if status.step is Step.WAITING and len(seen) < 7:
            until(lambda: one_more(7))
            consumer.close()
        parked = status.parked
    assert parked == 13
    headrace("backlog", "bring-back", topic, "--group", group, "--from", place, "--execute")
    found = handled_until(headrace, topic, handled, 13)
    assert sorted(seen + found) == list(range(10, 30))


def test_a_group_that_goes_back_meanwhile_is_not_moved(headrace: CommandLine, place: str) -> None:
    topic = f"back-{'file' if '/parked' in place else 'row'}"
    filled(headrace, topic, 1, 20)
    commit(headrace, f"{topic}-readers", topic, 10)
    parking = parking_at(headrace)
    steps = parking.park(parking.plan(topic, f"{topic}-readers"), place, by="me")
    next(steps)
    commit(headrace, f"{topic}-readers", topic, 4)
    with pytest.raises(CannotPark, match="has gone back"):
        list(steps)
    assert committed(headrace, f"{topic}-readers", topic) == [4]


def test_records_with_headers_of_replays_are_brought_back_too(
    headrace: CommandLine, place: str
) -> None:
    """Anybody may write these headers: they must not make a record disappear."""
    topic = f"marked-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=2, behind=0)
    add(headrace, topic, 2, range(2, 6), [("headrace-replayed-from", b"x/0/1")] * 6)
    words = (topic, "--group", f"{topic}-app")
    headrace("backlog", "park", *words, "--to", place, "--execute")
    back = headrace.json("backlog", "bring-back", *words, "--from", place, "--execute")
    assert (back["copied"], back["looped"]) == (4, 0)
    assert handled_until(headrace, topic, handled, 4) == [2, 3, 4, 5]


def test_a_topic_made_anew_under_a_parking_does_not_move_the_group(
    headrace: CommandLine, place: str
) -> None:
    topic = f"anew-{'file' if '/parked' in place else 'row'}"
    filled(headrace, topic, 1, 20)
    commit(headrace, f"{topic}-readers", topic, 10)
    parking = parking_at(headrace)
    steps = parking.park(parking.plan(topic, f"{topic}-readers"), place, by="me")
    next(steps)
    headrace("topics", "delete", topic, "--yes")
    filled(headrace, topic, 1, 30)
    commit(headrace, f"{topic}-readers", topic, 12)
    with pytest.raises(CannotPark, match="created again"):
        list(steps)
    assert committed(headrace, f"{topic}-readers", topic) == [12]


def test_small_transactions_change_nothing(
    headrace: CommandLine, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"small-{'file' if '/parked' in place else 'row'}"
    monkeypatch.setattr(parking_module, "RECORDS_PER_WRITE", 3)
    monkeypatch.setattr(copying_module, "RECORDS_PER_TRANSACTION", 4)
    handled = app_that_is_behind(headrace, topic, done=10, behind=21)
    words = (topic, "--group", f"{topic}-app")
    headrace("backlog", "park", *words, "--to", place, "--execute")
    assert (
        headrace.json("backlog", "bring-back", *words, "--from", place, "--execute")["copied"] == 21
    )
    assert handled_until(headrace, topic, handled, 21) == list(range(10, 31))


def test_an_undo_undoes_both_of_two_parkings_at_once(headrace: CommandLine, place: str) -> None:
    """Both looked at the group before either moved it, so both have moved it."""
    topic = f"race-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    group = f"{topic}-app"
    parking = parking_at(headrace)
    for _ in range(2):
        for _ in parking.park(parking.plan(topic, group), place, by="me"):
            pass
        # As if the other had not been there: the group is where both have seen it.
        headrace("groups", "reset", group, "--topic", topic, "--to-offset", "5", "--execute")
    commit(headrace, group, topic, 15, 15)
    headrace("replay", "undo", group, "--execute")
    words = ("backlog", "bring-back", topic, "--group", group, "--from", place, "--execute")
    assert "Nothing of" in headrace.failure(*words)
    assert handled_until(headrace, topic, handled, 20) == list(range(10, 30))


def test_two_returns_at_once_send_each_record_once(headrace: CommandLine, place: str) -> None:
    topic = f"returns-{'file' if '/parked' in place else 'row'}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    group = f"{topic}-app"
    headrace("backlog", "park", topic, "--group", group, "--to", place, "--execute")
    parking = parking_at(headrace)
    one = parking.bring_back_plan(topic, group, place, Selection(), by="one")
    two = parking.bring_back_plan(topic, group, place, Selection(key=b"k3"), by="two")
    steps = parking.bring_back(*one, group, Pace(rate=100))
    next(steps)
    with pytest.raises(CannotPark, match="Another command"):
        list(parking.bring_back(*two, group, Pace()))
    with pytest.raises(ClientError):  # fenced by the second, which has sent nothing
        list(steps)
    headrace("backlog", "bring-back", topic, "--group", group, "--from", place, "--execute")
    assert handled_until(headrace, topic, handled, 20) == list(range(10, 30))
