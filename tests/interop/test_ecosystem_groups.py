"""`headrace groups` and Apache's kafka-consumer-groups on one broker: they say and do the same."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Node
from tests.interop.java_session import JavaSession
from tests.interop.secured import ADMIN, client_settings, secured_node
from tests.interop.topics import create_topic
from tests.sockets.cli.conftest import CommandLine

BEGAN_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
COUNTS = (10, 7, 0)
DELETED = 2  # of the first partition, so that it does not begin at 0
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def headrace(broker: Node) -> CommandLine:
    return CommandLine(broker.bootstrap)


class ApachesTool:
    def __init__(self, java: JavaSession, bootstrap: str) -> None:
        self._java = java
        self._where = ("--bootstrap-server", bootstrap)

    def __call__(self, *words: str) -> str:
        return self._java.run(TOOL, *self._where, *words)

    def exported(self, group: str, *words: str) -> list[str]:
        """The lines for --from-file; warnings stand between them."""
        printed = self("--reset-offsets", "--group", group, *words, "--export", "--dry-run")
        return sorted(line for line in printed.splitlines() if re.fullmatch(r".+,\d+,\d+", line))

    def rows(self, *words: str) -> list[list[str]]:
        """The words of a table below its heading."""
        lines = [line.split() for line in self(*words).splitlines() if line.strip()]
        heading = next(n for n, line in enumerate(lines) if line[0] == "GROUP")
        return lines[heading + 1 :]


@pytest.fixture
def apaches(broker: Node, java: JavaSession) -> ApachesTool:
    return ApachesTool(java, broker.bootstrap)


def fill(broker: Node, topic: str, counts: tuple[int, ...] = COUNTS) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, count in enumerate(counts):
        for n in range(count):
            producer.produce(topic, b"%d" % n, partition=partition, timestamp=BEGAN_MS + n * 1_000)
    assert producer.flush(60) == 0


def commit(broker: Node, group: str, places: list[TopicPartition]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    deadline = time.monotonic() + 400
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            break
        except KafkaException as not_yet:  # the first group of an Apache broker
            assert not_yet.args[0].code() == KafkaError.NOT_COORDINATOR, not_yet
            assert time.monotonic() < deadline
    consumer.close()


@pytest.fixture
def topic(broker: Node) -> str:
    name = create_topic(broker.bootstrap, "reset", partitions=len(COUNTS))
    fill(broker, name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(name, 0, DELETED)]).values():
        done.result(60)
    return name


# What Apache's tool calls it, what ours does.
WAYS: list[tuple[list[str], list[str]]] = [
    (["--to-earliest"], ["--to-beginning"]),
    (["--to-latest"], ["--to-end"]),
    (["--to-current"], ["--to-current"]),
    (["--to-offset", "4"], ["--to-offset", "4"]),
    (["--to-offset", "0"], ["--to-offset", "0"]),
    (["--to-offset", "100"], ["--to-offset", "100"]),
    (["--to-datetime", "2023-11-14T22:13:25.000Z"], ["--to-time", "2023-11-14T22:13:25Z"]),
    (["--to-datetime", "2023-11-15T00:13:23.500+02:00"], ["--to-time", str(BEGAN_MS + 3_500)]),
    (["--to-datetime", "2000-01-01T00:00:00.000Z"], ["--to-time", "2000-01-01"]),
    (["--to-datetime", "2099-01-01T00:00:00.000Z"], ["--to-time", "2099-01-01"]),
    (["--by-duration", "P9999D"], ["--by-duration", "9999d"]),
    (["--by-duration", "PT1H30M"], ["--by-duration", "PT1H30M"]),
]
SHIFTS = ["1", "-1", "-100", "100"]


def test_every_way_of_a_reset_leads_to_the_same_places(
    broker: Node, headrace: CommandLine, apaches: ApachesTool, topic: str
) -> None:
    group = f"g-{topic}"
    commit(broker, group, [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 3)])
    reset = ("groups", "reset", group, "--export")
    for theirs, ours in WAYS:
        for scope in (["--topic", topic], ["--topic", f"{topic}:0,2"], ["--all-topics"]):
            expected = apaches.exported(group, *scope, *theirs)
            assert headrace(*reset, *scope, *ours).splitlines() == expected, (scope, ours)
            assert expected
    for number in SHIFTS:
        for scope in (["--topic", f"{topic}:1"], ["--all-topics"]):
            expected = apaches.exported(group, *scope, "--shift-by", number)
            assert headrace(*reset, *scope, "--shift-by", number).splitlines() == expected
            assert expected
    assert "nothing in" in headrace.failure(*reset, "--topic", topic, "--shift-by", "1")
    assert apaches.exported(group, "--topic", topic, "--to-current")[:2] == [
        f"{topic},0,5",
        f"{topic},1,3",
    ], "all of these were dry runs"


def test_what_one_exports_the_other_takes(
    broker: Node, headrace: CommandLine, apaches: ApachesTool, topic: str, tmp_path: Path
) -> None:
    group, file = f"g-{topic}", tmp_path / "places.csv"
    commit(broker, group, [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 3)])

    def committed() -> list[str]:
        return apaches.exported(group, "--all-topics", "--to-current")

    file.write_text(headrace("groups", "reset", group, "--topic", topic, "--to-end", "--export"))
    of_group = ("--reset-offsets", "--group", group)
    apaches(*of_group, "--from-file", str(file), "--execute")
    assert committed() == [f"{topic},0,10", f"{topic},1,7", f"{topic},2,0"]

    exported = apaches(*of_group, "--topic", topic, "--to-earliest", "--export", "--dry-run")
    file.write_text(exported)
    headrace("groups", "reset", group, "--from-file", str(file), "--execute")
    assert committed() == [f"{topic},0,{DELETED}", f"{topic},1,0", f"{topic},2,0"]

    # Of several groups at once, the group stands in front.
    other = f"other-{topic}"
    commit(broker, other, [TopicPartition(topic, 1, 1)])
    both = ("--reset-offsets", "--group", group, "--group", other)
    file.write_text(apaches(*both, "--topic", topic, "--to-latest", "--export", "--dry-run"))
    assert other in file.read_text()
    headrace("groups", "reset", group, "--from-file", str(file), "--execute")
    assert committed() == [f"{topic},0,10", f"{topic},1,7", f"{topic},2,0"]


def is_complete(broker: Node, group: str, count: int) -> bool:
    """All are in, and have said that they have their shares."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(60)
    return len(described.members) == count and described.state == ConsumerGroupState.STABLE


@contextmanager
def members(broker: Node, group: str, topic: str, count: int, protocol: str) -> Iterator[None]:
    """Consumers of librdkafka, once the partitions are shared out."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumers = [Consumer(settings | {"client.id": f"c{n}"}) for n in range(count)]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        deadline = time.monotonic() + 400
        share = max(1, len(COUNTS) // count)
        shares = [share] * min(count, len(COUNTS))
        while (
            sorted(len(c.assignment()) for c in consumers)[-len(COUNTS) :] != shares
            or not is_complete(broker, group, count)  # one without a share may not be in yet
        ):
            assert time.monotonic() < deadline, [c.assignment() for c in consumers]
            for consumer in consumers:
                consumer.poll(0.05)
        yield
    finally:
        for consumer in consumers:
            consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_living_group_is_described_alike(
    broker: Node,
    headrace: CommandLine,
    apaches: ApachesTool,
    topic: str,
    protocol: str,
    count: int,
) -> None:
    group = f"g-{topic}"
    places = [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 3)]
    commit(broker, group, places)
    with members(broker, group, topic, count, protocol):
        [ours] = headrace.json("groups", "describe", group)
        theirs = apaches.rows("--describe", "--group", group)
        rows = [row[1:7] for row in sorted(theirs, key=lambda row: row[2]) if row[1] == topic]
        # Nothing was committed for partition 2, which is empty: Apache leaves its lag open, while
        # we count the records that the group can still get.
        assert [row[4] for row in rows] == ["5", "4", "-"]
        assert [one["lag"] for one in ours["partitions"]] == [5, 4, 0]
        rows[2][4] = "0"
        assert [_row(one) for one in ours["partitions"]] == rows
        assert ours["lag"] == sum(int(row[4]) for row in rows if row[4] != "-") == 5 + 4

        of_members = apaches.rows("--describe", "--group", group, "--members")
        shares = {row[1]: int(row[-1]) for row in of_members}
        assert {one["id"]: len(one["assigned"]) for one in ours["members"]} == shares
        assert len(ours["members"]) == count
        [state] = apaches.rows("--describe", "--group", group, "--state")
        assert [ours["protocol"], ours["state"], str(count)] == state[-3:]
        assert ours["type"] == protocol

        idle = " (1 without partitions)" if count > len(COUNTS) else ""
        text = headrace("groups", "describe", group, "--members")
        assert text.startswith(f"{group}: Stable, {count} member{'s' * (count > 1)}{idle}, ")
        refuse(headrace, apaches, group, topic)
    assert [place.offset for place in committed(broker, group, places)] == [5, 3]
    [ours] = headrace.json("groups", "describe", group)
    assert ours["state"] == "Empty" and ours["members"] == []


def _row(one: dict[str, Any]) -> list[str]:
    fields = (one[name] for name in ("topic", "partition", "committed", "end_offset", "lag"))
    return ["-" if value is None else str(value) for value in (*fields, one["member"])]


def refuse(headrace: CommandLine, apaches: ApachesTool, group: str, topic: str) -> None:
    where = ("--topic", topic)
    said = apaches("--reset-offsets", "--group", group, *where, "--to-earliest", "--execute")
    assert "inactive, but the current state is Stable" in said
    for execute in ([], ["--execute"]):
        said = headrace.failure("groups", "reset", group, *where, "--to-beginning", *execute)
        assert said.startswith(f"Group {group} has active members (Stable): stop them first.")
    said = headrace.failure("groups", "delete", group)
    assert said.startswith(f"Group {group} has active members (Stable): stop them first.")


def committed(broker: Node, group: str, places: list[TopicPartition]) -> list[TopicPartition]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        return consumer.committed(places, timeout=60)
    finally:
        consumer.close()


def test_lists_and_deletions_agree(
    broker: Node, headrace: CommandLine, apaches: ApachesTool, topic: str
) -> None:
    groups = [f"{name}-{topic}" for name in ("gone", "kept", "living")]
    for group in groups[:2]:
        commit(broker, group, [TopicPartition(topic, 0, 5)])
    with members(broker, groups[2], topic, 1, "consumer"):

        def listed() -> dict[str, list[str]]:
            return {
                group["group"]: [group["type"].capitalize(), group["state"]]
                for group in headrace.json("groups", "list")
            }

        def states() -> dict[str, list[str]]:
            """Of those that earlier tests left some may come to an end just now: then once more."""
            ours, theirs, before = listed(), {}, None
            while before != ours:
                before = ours
                theirs = {row[0]: row[1:] for row in apaches.rows("--list", "--state", "--type")}
                ours = listed()
            assert ours == theirs
            return {group: ours[group] for group in groups if group in ours}

        gone, kept, living = groups
        assert states()[living] == ["Consumer", "Stable"]
        assert states()[gone] == states()[kept] == ["Classic", "Empty"]
        headrace("groups", "delete", gone)
        assert states().keys() == {kept, living}
        apaches("--delete", "--group", kept)
        assert states().keys() == {living}
        assert headrace.failure("groups", "describe", kept) == f"There is no group {kept}."


def test_a_thousand_partitions(broker: Node, headrace: CommandLine, apaches: ApachesTool) -> None:
    topic = create_topic(broker.bootstrap, "wide", partitions=1_000)
    fill(broker, topic, (2,) * 1_000)
    group = f"g-{topic}"
    headrace("groups", "reset", group, "--topic", topic, "--to-offset", "1", "--execute")
    [described] = headrace.json("groups", "describe", group)
    assert described["lag"] == len(described["partitions"]) == 1_000
    lines = headrace("groups", "describe", group).splitlines()
    assert len(lines) == 1_002
    assert len({len(line) for line in lines[2:]}) == 1, "the columns are straight"
    exported = headrace("groups", "reset", group, "--all-topics", "--to-end", "--export")
    assert sorted(exported.splitlines()) == apaches.exported(group, "--all-topics", "--to-latest")


def test_who_lacks_a_right_is_told_which(target: str, tmp_path: Path) -> None:
    with secured_node(target, tmp_path, ["poor"]) as node:
        rich, poor = (
            [part for pair in client_settings(user).items() for part in ("-X", "=".join(pair))]
            for user in (ADMIN, "poor")
        )
        headrace = CommandLine(node.bootstrap)
        headrace("topics", "create", "secret", *rich)
        headrace("produce", "secret", *rich, stdin="one\ntwo\n")
        reset = ("groups", "reset", "hidden", "--topic", "secret", "--to-offset", "1")
        headrace(*reset, "--execute", *rich)

        assert headrace.json("groups", "list", *poor) == []
        group, topic = "may not do that with the group", "no topic secret, or this user may not"
        for refused, says in (
            (("groups", "describe", "hidden"), group),
            (("groups", "delete", "hidden"), group),
            (reset, group),
        ):
            assert says in headrace.failure(*refused, *poor)
        may = ("acls", "add", "--principal", "User:poor", "--operation")
        headrace(*may, "READ", "--group", "hidden", *rich)
        assert topic in headrace.failure(*reset, *poor)
        headrace(*may, "DESCRIBE", "--topic", "secret", *rich)
        [described] = headrace.json("groups", "describe", "hidden", *poor)
        assert described["lag"] == 1
        assert not headrace.json(*reset, *poor)["executed"], "who may see may try"
        said = headrace.failure(*reset, "--execute", *poor)
        assert "may not do that with the topic secret" in said
        said = headrace.failure("groups", "delete", "hidden", *poor)
        assert group in said, "it takes DELETE"
