"""`headrace backlog` on a real broker: what holds a group up, and the ways to catch up."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from sqlalchemy import create_engine, text

from headrace.client.connection import ClientSettings
from headrace.services.backlog import parking as parking_module
from headrace.services.backlog.parking import Parking
from headrace.services.replay import topic_copy as copying_module
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.cli.groups_behind import app_of, commit, committed


def filled(headrace: CommandLine, topic: str, partitions: int, count: int, age_s: int = 0) -> None:
    headrace("topics", "create", topic, "--partitions", str(partitions))
    add(headrace, topic, partitions, range(count), age_s)


def add(headrace: CommandLine, topic: str, partitions: int, numbers: range, age_s: int = 0) -> None:
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    at_ms = int(time.time() * 1000) - age_s * 1000
    for number in numbers:
        producer.produce(
            topic, b"%d" % number, key=b"k%d" % (number % 7), partition=number % partitions,
            timestamp=at_ms + number, headers=[("n", b"%d" % number)],
        )  # fmt: skip
    assert producer.flush(60) == 0


# ---- looking


@pytest.mark.integration
def test_a_group_that_nobody_runs_is_behind_in_records_and_seconds(headrace: CommandLine) -> None:
    filled(headrace, "behind", 2, 600, age_s=3_600)
    commit(headrace, "sleepers", "behind", 100, 0)
    [found] = headrace.json("backlog", "status", "sleepers", "--watch-for", "10ms")
    assert found["lag"] == 500
    assert 3_600 <= found["behind_s"] < 7_200
    assert found["caught_up_in_s"] is None
    assert [each["cause"] for each in found["findings"]] == ["no-members"]
    said = headrace("backlog", "status", "sleepers", "--watch-for", "10ms")
    assert re.search(r"sleepers: 500 records behind, 6\d min", said)
    assert "No active members" in said
    assert "sleepers" in headrace("backlog", "status", "--watch-for", "10ms")
    assert headrace.failure("backlog", "status", "nobody") == "There is no group nobody."
    assert headrace.exit_code("backlog", "status", "--watch-for", "long") == 2


def test_more_partitions_come_after_a_word_about_the_order_of_keys(headrace: CommandLine) -> None:
    filled(headrace, "narrow", 2, 60)
    commit(headrace, "narrow-readers", "narrow", 10, 10)
    plan = headrace.json("backlog", "add-partitions", "narrow", "--to", "6")
    assert (plan["keys"], plan["partitions"], plan["executed"]) == (7, 2, False)
    assert 0 < plan["moving"] <= 7
    assert plan["behind"] == {"narrow-readers": 40}
    assert "keys of the newest records" in headrace(
        "backlog", "add-partitions", "narrow", "--to", "6"
    )
    headrace("backlog", "add-partitions", "narrow", "--to", "6", "--execute")
    [described] = headrace.json("topics", "describe", "narrow")
    assert len(described["partitions"]) == 6
    assert "it can only get more" in headrace.failure(
        "backlog", "add-partitions", "narrow", "--to", "6"
    )


# ---- parking


@pytest.mark.integration
def test_a_backlog_is_parked_and_brought_back_to_its_group_once(
    headrace: CommandLine, tmp_path: Path
) -> None:
    handled: list[tuple[int, str]] = []
    filled(headrace, "mails", 3, 30)
    with app_of(headrace, "mails", handled).running():
        until(lambda: committed(headrace, "mails-app", "mails") == [10, 10, 10])
    ids = dict(handled)
    add(headrace, "mails", 3, range(30, 90))
    url = f"sqlite:///{tmp_path / 'parked.db'}"
    words = ("mails", "--group", "mails-app")

    assert not headrace.json("backlog", "park", *words, "--to", url)["executed"]
    assert committed(headrace, "mails-app", "mails") == [10, 10, 10]
    done = headrace.json("backlog", "park", *words, "--to", url, "--execute")
    assert done["parked"] == 60
    assert committed(headrace, "mails-app", "mails") == [30, 30, 30]

    add(headrace, "mails", 3, range(90, 99))
    back = headrace.json("backlog", "bring-back", *words, "--from", url)
    assert sum(each["waiting"] for each in back["parked"]) == 60
    first = headrace.json(
        "backlog", "bring-back", *words, "--from", url, "--key", "k3", "--execute"
    )
    rest = headrace.json("backlog", "bring-back", *words, "--from", url, "--execute")
    assert first["copied"] + rest["copied"] == 60
    assert "Nothing of mails is parked" in headrace.failure(
        "backlog", "bring-back", *words, "--from", url, "--execute"
    )
    handled.clear()
    with app_of(headrace, "mails", handled).running():
        until(lambda: len(handled) == 69)
    assert sorted(number for number, _ in handled) == list(range(30, 99))
    # Under the ids that they would have had in the topic: a handler with once= knows them.
    assert {name.partition("@")[2] for _, name in handled} == {
        name.partition("@")[2] for name in ids.values()
    }


@pytest.mark.integration
def test_a_parking_and_a_return_that_are_stopped_anywhere_lose_and_double_nothing(
    headrace: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[tuple[int, str]] = []
    filled(headrace, "calls", 2, 10)
    with app_of(headrace, "calls", handled).running():
        until(lambda: committed(headrace, "calls-app", "calls") == [5, 5])
    add(headrace, "calls", 2, range(10, 110))
    monkeypatch.setattr(parking_module, "RECORDS_PER_WRITE", 30)
    monkeypatch.setattr(copying_module, "RECORDS_PER_TRANSACTION", 30)
    url = f"sqlite:///{tmp_path / 'parked.db'}"
    cluster = ClientSettings({"bootstrap.servers": headrace.bootstrap})
    parking = Parking(cluster)

    stopped = parking.park(parking.plan("calls", "calls-app"), url, by="me")
    next(stopped)
    stopped.close()
    assert committed(headrace, "calls-app", "calls") == [5, 5]
    for _ in parking.park(parking.plan("calls", "calls-app"), url, by="me"):
        pass
    assert committed(headrace, "calls-app", "calls") == [55, 55]
    engine = create_engine(url)
    with engine.begin() as db:
        assert db.execute(text("SELECT count(*) FROM headrace_parked")).scalar_one() == 100

    runs = 0
    while True:
        store, plan = parking.bring_back_plan("calls", "calls-app", url, Selection(), by="me")
        # Killed after the transaction and before the table is told of it, half of the time.
        if runs % 2:
            monkeypatch.setattr(store, "mark_brought_back", lambda places: None)
        steps = parking.bring_back(store, plan, "calls-app", Pace())
        state = next(steps).state
        steps.close()
        monkeypatch.undo()
        monkeypatch.setattr(copying_module, "RECORDS_PER_TRANSACTION", 30)
        if state == "done":
            break
        runs += 1
    handled.clear()
    with app_of(headrace, "calls", handled).running():
        until(lambda: len(handled) >= 100)
    assert sorted(number for number, _ in handled) == list(range(10, 110))
    assert runs == 4  # the last one only says that it is done


def test_what_cannot_be_parked_is_said(headrace: CommandLine, tmp_path: Path) -> None:
    filled(headrace, "letters", 1, 5)
    commit(headrace, "plain", "letters", 2)
    url = f"sqlite:///{tmp_path / 'p.db'}"
    words = ("backlog", "park", "letters", "--group")
    assert "has committed nothing" in headrace.failure(*words, "never", "--to", url)
    assert "Give a place" in headrace.failure(*words, "plain", "--to", " ", "--execute")
    assert "not oracle" in headrace.failure(*words, "plain", "--to", "oracle://x", "--execute")
    (tmp_path / "file").write_bytes(b"")
    assert "The folder refused" in headrace.failure(
        *words, "plain", "--to", str(tmp_path / "file"), "--execute"
    )
    missing = f"sqlite:///{tmp_path / 'no' / 'such' / 'p.db'}"
    assert "The database refused" in headrace.failure(*words, "plain", "--to", missing, "--execute")
    assert committed(headrace, "plain", "letters") == [2]
    back = ("backlog", "bring-back", "letters", "--group", "plain", "--from", url)
    assert "not an app of Headrace" in headrace.failure(*back)
    assert "There is no topic nosuch" in headrace.failure(
        "backlog", "park", "nosuch", "--group", "plain", "--to", url
    )


# ---- too old


@pytest.mark.integration
def test_what_is_too_old_becomes_dead_letters_with_that_reason(headrace: CommandLine) -> None:
    handled: list[tuple[int, str]] = []
    filled(headrace, "offers", 2, 4)
    with app_of(headrace, "offers", handled).running():
        until(lambda: committed(headrace, "offers-app", "offers") == [2, 2])
    add(headrace, "offers", 2, range(4, 14), age_s=7_200)
    add(headrace, "offers", 2, range(14, 20))
    words = ("backlog", "expire", "offers", "--group", "offers-app", "--older-than", "1h")
    headrace(*words)
    assert committed(headrace, "offers-app", "offers") == [2, 2]
    assert headrace.json(*words, "--execute")["copied"] == 10
    assert committed(headrace, "offers-app", "offers") == [7, 7]
    letters = headrace.json("dead-letters", "list", "offers.offers-app.dead")
    assert len(letters) == 10
    assert {letter["error"] for letter in letters} == {"headrace.Expired"}
    assert "only 3,600 s were allowed" in letters[0]["message"]
    assert "not that far behind" in headrace.failure(*words, "--execute")
    handled.clear()
    with app_of(headrace, "offers", handled).running():
        until(lambda: len(handled) == 6)
    assert sorted(number for number, _ in handled) == list(range(14, 20))
