"""`headrace replay` on a real broker: what is read again, once, and the way back."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, Producer

from headrace import App
from headrace.client.connection import ClientSettings
from headrace.services.replay import topic_copy as copying_module
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection
from headrace.services.replay.topic_copy import Copying, CopyRequest
from headrace.wire.contract.headers import REPLAYED_FROM
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.cli.groups_behind import commit, committed

T0 = 1_790_000_000_000


def filled(headrace: CommandLine, topic: str, *stamps: list[int]) -> None:
    """A partition for each list, with a record for each of its times: value and key tell where."""
    headrace("topics", "create", topic, "--partitions", str(len(stamps)))
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    for partition, times in enumerate(stamps):
        for number, seconds in enumerate(times):
            value = json.dumps({"n": number, "p": partition}).encode()
            producer.produce(
                topic, value, key=b"k%d" % (number % 2), partition=partition,
                timestamp=T0 + seconds * 1000,
            )  # fmt: skip
    assert producer.flush(60) == 0


def values(headrace: CommandLine, topic: str) -> list[dict[str, int]]:
    lines = headrace("consume", topic).splitlines()
    return [json.loads(line) for line in lines]


# ---- copies


def test_a_copy_is_planned_first_and_then_made_once(headrace: CommandLine) -> None:
    filled(headrace, "sales", [0, 10, 20], [5, 15])
    headrace("topics", "create", "sales-again", "--partitions", "1", "--config", "retention.ms=-1")
    words = ("replay", "copy", "sales", "--to", "sales-again")

    plan = headrace.json(*words)
    assert [each["offsets"] for each in plan["partitions"]] == [3, 2]
    assert not plan["executed"] and not plan["same_partitions"]
    assert values(headrace, "sales-again") == []

    done = headrace.json(*words, "--execute")
    assert (done["copied"], done["left"], done["state"]) == (5, 0, "done")
    # In the order of time over both partitions.
    assert [(v["p"], v["n"]) for v in values(headrace, "sales-again")] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (0, 2),
    ]  # fmt: skip
    assert "is done: 5 records" in headrace.failure(*words, "--execute")
    assert len(values(headrace, "sales-again")) == 5
    headrace(*words, "--execute", "--name", "once more")
    assert len(values(headrace, "sales-again")) == 10
    names = {each["name"] for each in headrace.json("replay", "list")["copies"]}
    assert "once more" in names and done["name"] in names


def test_copies_keep_key_time_and_headers_and_say_where_they_came_from(
    headrace: CommandLine,
) -> None:
    filled(headrace, "kept", [0])
    headrace("topics", "create", "kept-copy", "--config", "retention.ms=-1")
    headrace("replay", "copy", "kept", "--to", "kept-copy", "--execute")
    [one] = headrace.json_lines("consume", "kept-copy")
    assert (one["key"], one["timestamp"]) == ("k0", T0)
    assert [REPLAYED_FROM, "kept/0/0"] in [list(pair.values()) for pair in one["headers"]]


@pytest.mark.integration
def test_conditions_choose_records(headrace: CommandLine) -> None:
    filled(headrace, "picked", [0, 10, 20, 30], [5, 15])
    headrace("topics", "create", "picks", "--config", "retention.ms=-1")
    copied: list[list[tuple[int, int]]] = []
    for conditions in (
        ["--key", "k1"],
        ["--where", "value.n >= 2"],
        ["--since", str(T0 + 10_000), "--until", str(T0 + 20_000)],
        ["--from-offset", "1", "--to-offset", "2"],
    ):
        before = len(values(headrace, "picks"))
        headrace("replay", "copy", "picked", "--to", "picks", *conditions, "--execute")
        copied.append([(v["p"], v["n"]) for v in values(headrace, "picks")[before:]])
    assert copied == [
        [(0, 1), (1, 1), (0, 3)],
        [(0, 2), (0, 3)],
        [(0, 1), (1, 1)],
        [(0, 1), (1, 1)],
    ]
    assert headrace.exit_code("replay", "copy", "picked", "--to", "picks", "--where", "(") == 2


@pytest.mark.integration
def test_a_topic_is_not_fed_with_its_own_copies(headrace: CommandLine) -> None:
    filled(headrace, "ring", [0, 1])
    headrace("topics", "alter", "ring", "--config", "retention.ms=-1")
    headrace("replay", "copy", "ring", "--to", "ring", "--execute", "--name", "first")
    again = headrace.json("replay", "copy", "ring", "--to", "ring", "--execute", "--name", "second")
    assert (again["copied"], again["looped"]) == (2, 2)
    assert len(values(headrace, "ring")) == 6


def test_records_that_retention_would_remove_at_once_are_refused(headrace: CommandLine) -> None:
    headrace("topics", "create", "yesterday")
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    producer.produce("yesterday", b"{}", timestamp=int(time.time() * 1000) - 86_400_000)
    assert producer.flush(60) == 0
    headrace("topics", "create", "short", "--config", "retention.ms=3600000")
    words = ("replay", "copy", "yesterday", "--to", "short")
    assert "removed at once" in headrace.failure(*words, "--execute")
    headrace(*words, "--times", "now", "--execute")
    assert len(values(headrace, "short")) == 1


def test_what_cannot_be_copied_is_said(headrace: CommandLine) -> None:
    filled(headrace, "here", [0])
    said = headrace.failure("replay", "copy", "here", "--to", "nowhere")
    assert "headrace topics create nowhere" in said
    assert "nosuch" in headrace.failure("replay", "copy", "nosuch", "--to", "here")
    assert "no partition 7" in headrace.failure("replay", "copy", "here:7", "--to", "here")
    both = ("replay", "copy", "here", "--to", "here", "--rate", "1", "--speed", "1")
    assert headrace.exit_code(*both) == 2
    assert headrace.exit_code("replay", "copy", "here", "--to", "here", "--times", "then") == 2


@pytest.mark.integration
def test_a_copy_that_was_stopped_goes_on_where_it_was(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after each transaction: nothing twice, nothing left out, in the same order."""
    filled(headrace, "long", list(range(0, 200, 2)), list(range(1, 200, 2)))
    headrace("topics", "create", "long-copy", "--config", "retention.ms=-1")
    monkeypatch.setattr(copying_module, "RECORDS_PER_TRANSACTION", 45)
    cluster = ClientSettings({"bootstrap.servers": headrace.bootstrap})
    request = CopyRequest("stopped", "long", "long-copy", Selection(where="value.n != 3"), by="me")
    stops = 0
    while True:
        copying = Copying(cluster, cluster)
        steps = copying.copy(copying.plan(request), Pace())
        if next(steps).state == "done":
            break
        steps.close()
        stops += 1
    found = [(v["p"], v["n"]) for v in values(headrace, "long-copy")]
    assert found == [(n % 2, n // 2) for n in range(200) if n // 2 != 3]
    assert stops == 4


def test_a_topic_made_anew_is_another_topic(headrace: CommandLine) -> None:
    filled(headrace, "renewed", [0, 1, 2])
    headrace("topics", "create", "renewed-copy", "--config", "retention.ms=-1")
    cluster = ClientSettings({"bootstrap.servers": headrace.bootstrap})
    request = CopyRequest("renewed", "renewed", "renewed-copy", Selection(), by="me")
    copying = Copying(cluster, cluster)
    steps = copying.copy(copying.plan(request), Pace(rate=0.5))
    assert next(steps).copied == 1
    steps.close()
    headrace("topics", "delete", "renewed", "--yes")
    filled(headrace, "renewed", [0, 1, 2])
    words = ("replay", "copy", "renewed", "--to", "renewed-copy", "--name", "renewed", "--execute")
    assert "created again" in headrace.failure(*words)


# ---- groups


@pytest.mark.integration
def test_a_group_goes_back_and_is_put_where_it_was(headrace: CommandLine) -> None:
    filled(headrace, "read", [0, 10, 20, 30], [5, 15], [7])
    commit(headrace, "reader", "read", 4, 1)  # nothing in partition 2
    words = ("replay", "group", "reader", "--topic", "read")

    plan = headrace.json(*words, "--since", str(T0 + 10_000), "--assume-rate", "2")
    assert [each["target"] for each in plan["partitions"]] == [1, None, None]
    assert (plan["again"], plan["takes_s"]) == (3, 1.5)
    assert plan["partitions"][0]["oldest_ms"] == T0 + 10_000
    assert committed(headrace, "reader", "read") == [4, 1]

    headrace(*words, "--since", str(T0 + 10_000), "--execute", "--reason", "a wrong price")
    assert committed(headrace, "reader", "read") == [1, 1]
    headrace("replay", "undo", "reader")  # a dry run
    assert committed(headrace, "reader", "read") == [1, 1]
    headrace("replay", "undo", "reader", "--execute")
    assert committed(headrace, "reader", "read") == [4, 1]
    headrace("replay", "undo", "reader", "--execute")  # of the undo
    assert committed(headrace, "reader", "read") == [1, 1]

    moves = [m for m in headrace.json("replay", "list")["moves"] if m["group"] == "reader"]
    assert [m["action"] for m in moves] == ["moved", "undone", "undone"]
    assert moves[0]["reason"] == "a wrong price"
    assert "a wrong price" in headrace("replay", "list")


@pytest.mark.integration
def test_a_group_with_members_is_not_moved(headrace: CommandLine) -> None:
    filled(headrace, "busy", [0, 1])
    commit(headrace, "at-work", "busy", 2)
    consumer = Consumer({"bootstrap.servers": headrace.bootstrap, "group.id": "at-work"})
    consumer.subscribe(["busy"])
    until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))
    words = ("replay", "group", "at-work", "--topic", "busy", "--from-offset", "0")
    assert headrace.json(*words)["is_active"]
    assert "active members" in headrace.failure(*words, "--execute")
    consumer.close()
    assert committed(headrace, "at-work", "busy") == [2]


def test_what_cannot_be_read_again_is_said(headrace: CommandLine) -> None:
    filled(headrace, "short-read", [0])
    commit(headrace, "there", "short-read", 0)
    words = ("replay", "group", "there", "--topic", "short-read")
    assert headrace.exit_code(*words) == 2
    nothing = headrace.failure(*words, "--from-offset", "0", "--execute")
    assert nothing == "Group there would read nothing again there."
    assert "not an app of Headrace" in headrace.failure(*words, "--from-offset", "0", "--key", "k0")
    assert "No replay has moved" in headrace.failure("replay", "undo", "there")
    gone = ("replay", "group", "nobody", "--topic", "short-read", "--from-offset", "0")
    assert headrace.failure(*gone) == "There is no group nobody."


@pytest.mark.integration
def test_an_app_handles_chosen_records_again_and_nobody_else_does(headrace: CommandLine) -> None:
    filled(headrace, "bills", [0, 10, 20], [5])
    handled: list[tuple[int, int, str]] = []
    app = App(headrace.bootstrap, group="billing", delay="off")

    from headrace.app import Message

    @app.on("bills")
    def bill(message: Message) -> None:
        handled.append((message.partition, message.offset, message.id))

    with app.running():
        until(lambda: len(handled) == 4)
        until(lambda: committed(headrace, "billing", "bills") == [3, 1])
        words = ("replay", "group", "billing", "--topic", "bills", "--from-offset", "0")
        done = headrace.json(*words, "--key", "k0", "--execute")
        assert done["copied"] == 3
        until(lambda: len(handled) == 7)
        assert sorted(handled[4:]) == sorted(one for one in handled[:4] if one[:2] != (0, 1))
        headrace(*words, "--key", "k1", "--as-new", "--execute")
        until(lambda: len(handled) == 8)
    first_id = next(one[2] for one in handled if one[:2] == (0, 1))
    assert handled[-1][:2] == (0, 1)
    assert handled[-1][2].startswith(f"{first_id}~replay~")
