"""`headrace groups` on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.unit.cli.conftest import CommandLine


def commit(headrace: CommandLine, group: str, topic: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": headrace.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@contextmanager
def member(headrace: CommandLine, group: str, topic: str) -> Iterator[None]:
    consumer = Consumer({"bootstrap.servers": headrace.bootstrap, "group.id": group})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 20
    while not consumer.assignment():
        consumer.poll(0.05)
        assert time.monotonic() < deadline
    try:
        yield
    finally:
        consumer.close()


def topic_with(headrace: CommandLine, name: str, *counts: int) -> None:
    headrace("topics", "create", name, "--partitions", str(len(counts)))
    for partition, count in enumerate(counts):
        lines = "".join(f"{number}\n" for number in range(count))
        headrace("produce", name, "--partition", str(partition), stdin=lines)


def places(headrace: CommandLine, group: str) -> list[int]:
    [described] = headrace.json("groups", "describe", group)
    return [one["committed"] for one in described["partitions"]]


def test_a_group_is_listed_and_described_with_its_lag(headrace: CommandLine) -> None:
    topic_with(headrace, "lagging", 5, 3)
    commit(headrace, "slow", "lagging", 2, 3)
    assert {"group": "slow", "state": "Empty", "type": "classic"} in headrace.json("groups", "list")
    assert "slow" in headrace("groups", "list")
    [described] = headrace.json("groups", "describe", "slow")
    assert described["lag"] == 3
    assert [one["lag"] for one in described["partitions"]] == [3, 0]
    assert "lag 3 in all" in headrace("groups", "describe", "slow")
    assert headrace.failure("groups", "describe", "nobody") == "There is no group nobody."


def test_a_reset_is_a_dry_run_until_it_is_executed(headrace: CommandLine) -> None:
    topic_with(headrace, "moved", 5, 3)
    commit(headrace, "mover", "moved", 2, 3)
    words = ("groups", "reset", "mover", "--topic", "moved")

    assert not headrace.json(*words, "--to-beginning")["executed"]
    assert places(headrace, "mover") == [2, 3]
    headrace(*words, "--to-beginning", "--execute")
    assert places(headrace, "mover") == [0, 0]
    headrace(*words, "--to-end", "--execute")
    assert places(headrace, "mover") == [5, 3]
    headrace(*words, "--shift-by", "-2", "--execute")
    assert places(headrace, "mover") == [3, 1]
    headrace(*words, "--shift-by", "100", "--execute")
    assert places(headrace, "mover") == [5, 3]
    headrace("groups", "reset", "mover", "--topic", "moved:1", "--to-offset", "2", "--execute")
    assert places(headrace, "mover") == [5, 2]
    headrace("groups", "reset", "mover", "--all-topics", "--by-duration", "1h", "--execute")
    assert places(headrace, "mover") == [0, 0]
    headrace(*words, "--to-time", "2099-01-01T00:00", "--execute")
    assert places(headrace, "mover") == [5, 3]


def test_places_are_read_from_a_file(headrace: CommandLine, tmp_path: Path) -> None:
    topic_with(headrace, "filed", 5)
    file = tmp_path / "places.csv"
    file.write_text("filed,0,4\n")
    headrace("groups", "reset", "reader", "--from-file", str(file), "--execute")
    assert places(headrace, "reader") == [4]
    file.write_text("filed,zero,4\n")
    said = headrace.failure("groups", "reset", "reader", "--from-file", str(file))
    assert said == f"Line 1 of {file} is not topic,partition,offset."
    file.write_text("filed,7,4\n")
    said = headrace.failure("groups", "reset", "reader", "--from-file", str(file))
    assert said == "There is no partition 7 of topic filed."


def test_an_active_group_is_left_alone(headrace: CommandLine) -> None:
    topic_with(headrace, "busy", 1)
    with member(headrace, "workers", "busy"):
        for words in (
            ["reset", "workers", "--topic", "busy", "--to-beginning"],
            ["reset", "workers", "--topic", "busy", "--to-beginning", "--execute"],
            ["delete", "workers"],
        ):
            said = headrace.failure("groups", *words)
            assert said == "Group workers has active members (Stable): stop them first."
        [described] = headrace.json("groups", "describe", "workers")
        assert len(described["members"]) == 1
        assert described["partitions"][0]["member"] == described["members"][0]["id"]


def test_groups_are_deleted_with_their_offsets(headrace: CommandLine) -> None:
    topic_with(headrace, "left", 1)
    commit(headrace, "leaver", "left", 1)
    assert headrace("groups", "delete", "leaver") == "Deleted leaver.\n"
    assert headrace.failure("groups", "delete", "leaver") == "There is no group leaver."


def test_one_way_to_say_where_and_one_to_say_what(headrace: CommandLine) -> None:
    for words in (
        ["--topic", "t"],
        ["--topic", "t", "--to-end", "--to-beginning"],
        ["--to-end"],
        ["--topic", "t", "--all-topics", "--to-end"],
        ["--topic", "t", "--by-duration", "soon"],
    ):
        headrace("topics", "create", "t", "--if-missing")
        assert headrace.exit_code("groups", "reset", "g", *words) == 2
    assert headrace.failure("groups", "reset", "g", "--topic", "none", "--to-end") == (
        "There is no topic none."
    )
