"""`headrace groups` on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.wire.protocol.messages import (
    consumer_group_heartbeat,
    find_coordinator,
    streams_group_heartbeat,
)
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.cli.groups_behind import commit


@contextmanager
def member(
    headrace: CommandLine, group: str, topic: str, protocol: str = "classic"
) -> Iterator[None]:
    consumer = Consumer(
        {"bootstrap.servers": headrace.bootstrap, "group.id": group, "group.protocol": protocol}
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 180
    while not consumer.assignment():
        consumer.poll(0.05)
        assert time.monotonic() < deadline
    try:
        yield
    finally:
        consumer.close()


def topic_with(headrace: CommandLine, name: str, *counts: int) -> None:
    headrace("topics", "create", name, "--partitions", str(len(counts)))
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(name, str(number), partition=partition)
    assert producer.flush(60) == 0


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
    assert "lag 3" in headrace("groups", "describe", "slow")
    assert headrace.failure("groups", "describe", "nobody") == "There is no group nobody."
    assert headrace.failure("groups", "describe", "slow", "nobody") == "There is no group nobody."
    assert "group id is not valid" in headrace.failure("groups", "describe", "")


def test_groups_are_listed_by_state_and_type(headrace: CommandLine) -> None:
    topic_with(headrace, "sorted", 1)
    commit(headrace, "left-behind", "sorted", 0)
    with member(headrace, "reading", "sorted"), member(headrace, "newer", "sorted", "consumer"):

        def listed(*words: str) -> set[str]:
            return {group["group"] for group in headrace.json("groups", "list", *words)}

        # A member may have its share before its group is told to be at rest.
        until(lambda: listed("--state", "Stable") == {"reading", "newer"})
        assert listed("--state", "empty") & {"left-behind", "reading", "newer"} == {"left-behind"}
        assert listed("--type", "consumer") == {"newer"}
        assert listed("--state", "stable", "--type", "classic") == {"reading"}
    assert listed("--state", "dead") == set()
    assert headrace.exit_code("groups", "list", "--state", "tired") == 2
    assert headrace.exit_code("groups", "list", "--type", "other") == 2


def test_a_streams_group_is_shown_and_deleted(headrace: CommandLine) -> None:
    topic_with(headrace, "lines", 3)
    host, port = headrace.bootstrap.rsplit(":", 1)
    with Wire(ClientSettings({"bootstrap.servers": headrace.bootstrap}), (host, int(port))) as wire:
        key = find_coordinator.FindCoordinatorRequest("", 0, ["app"])
        until(lambda: wire.ask(find_coordinator, key).coordinators[0].error_code == 0)
        reads = streams_group_heartbeat.Subtopology("0", ["lines"])
        joins = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
            *("app", "first", 0, 0),
            rebalance_timeout_ms=1_000,
            topology=streams_group_heartbeat.Topology(0, [reads]),
            process_id="process",
        )
        assert wire.ask(streams_group_heartbeat, joins).error_code == 0
        assert "app" in {
            one["group"] for one in headrace.json("groups", "list", "--type", "streams")
        }
        shown = headrace("groups", "describe", "app")
        assert "1 member" in shown and "streams, sticky" in shown
        assert "active members" in headrace.failure(
            *("groups", "reset", "app", "--topic", "lines", "--to-end", "--execute")
        )
        refused = headrace.failure("brokers", "features", "streams.version=0")
        assert "there are 1 streams groups, such as app" in refused
        leaves = streams_group_heartbeat.StreamsGroupHeartbeatRequest("app", "first", -1)
        assert wire.ask(streams_group_heartbeat, leaves).error_code == 0
    headrace("groups", "reset", "app", "--topic", "lines", "--to-end", "--execute")
    assert places(headrace, "app") == [3]
    headrace("groups", "delete", "app", "--yes")
    assert headrace.failure("groups", "describe", "app") == "There is no group app."


@pytest.mark.integration
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
    # Minus one millisecond since 1970, which on the wire would mean "the end".
    headrace(*words, "--to-time", "1969-12-31T23:59:59.999Z", "--execute")
    assert places(headrace, "mover") == [0, 0]
    headrace(*words, "--by-duration", "P99999D", "--execute")
    assert places(headrace, "mover") == [0, 0]


def test_an_offset_that_is_not_there_is_moved_to_the_edge_and_told(headrace: CommandLine) -> None:
    topic_with(headrace, "edged", 5, 3)
    commit(headrace, "edger", "edged", 2, 1)
    words = ("groups", "reset", "edger", "--topic", "edged")
    [first, second] = headrace.json(*words, "--to-offset", "4")["partitions"]
    assert (first["target"], first["wanted"]) == (4, 4)
    assert (second["target"], second["wanted"]) == (3, 4)
    said = headrace.notes(*words, "--to-offset", "4")
    assert "edged-1 holds no offset 4: the end, 3, is taken." in said
    assert "edged-0" not in said
    said = headrace.notes(*words, "--shift-by", "-2")
    assert "edged-1 holds no offset -1: the first record, 0, is taken." in said


def test_where_it_stands_can_be_exported_and_put_back(
    headrace: CommandLine, tmp_path: Path
) -> None:
    topic_with(headrace, "kept", 5, 3)
    commit(headrace, "keeper", "kept", 2)
    words = ("groups", "reset", "keeper")
    # Where it has no place yet, that is the end.
    saved = headrace(*words, "--topic", "kept", "--to-current", "--export")
    assert saved == "kept,0,2\nkept,1,3\n"
    assert places(headrace, "keeper") == [2, None], "an export is a dry run"
    file = tmp_path / "places.csv"
    file.write_text(saved)
    headrace(*words, "--topic", "kept", "--to-beginning", "--execute")
    headrace(*words, "--from-file", str(file), "--execute")
    assert places(headrace, "keeper") == [2, 3]
    headrace(*words, "--from-file", "-", "--execute", stdin="keeper,kept,0,1\nother,kept,1,0\n")
    assert places(headrace, "keeper") == [1, 3]
    assert headrace.exit_code(*words, "--from-file", str(file), "--topic", "kept") == 2
    assert headrace.exit_code(*words, "--from-file", str(file), "--export", "--json") == 2


def test_places_are_read_from_a_file(headrace: CommandLine, tmp_path: Path) -> None:
    topic_with(headrace, "filed", 5)
    file = tmp_path / "places.csv"
    file.write_text("filed,0,4\n")
    headrace("groups", "reset", "reader", "--from-file", str(file), "--execute")
    assert places(headrace, "reader") == [4]
    for line, says in (
        ("filed,zero,4", f"Line 1 of {file} is not topic,partition,offset."),
        ("filed,7,4", "There is no partition 7 of topic filed, which has 1."),
        ("nothing,0,4", "There is no topic nothing."),
    ):
        file.write_text(f"{line}\n")
        assert headrace.failure("groups", "reset", "reader", "--from-file", str(file)) == says


@pytest.mark.parametrize(
    "way",
    [
        ["--to-beginning"],
        ["--to-end"],
        ["--to-current"],
        ["--to-offset", "0"],
        ["--to-time", "2026-01-31T12:00"],
        ["--by-duration", "1h"],
        ["--shift-by", "1"],
    ],
)
def test_a_partition_that_is_not_there_is_refused_in_every_way(
    headrace: CommandLine, way: list[str]
) -> None:
    headrace("topics", "create", "narrow", "--if-missing")
    for execute in ([], ["--execute"]):
        said = headrace.failure("groups", "reset", "g", "--topic", "narrow:0,7", *way, *execute)
        assert said == "There is no partition 7 of topic narrow, which has 1."


def test_an_active_group_is_left_alone(headrace: CommandLine) -> None:
    topic_with(headrace, "busy", 1)
    with member(headrace, "workers", "busy"):
        for words in (
            ["reset", "workers", "--topic", "busy", "--to-beginning"],
            ["reset", "workers", "--topic", "busy", "--to-beginning", "--execute"],
            ["delete", "workers"],
        ):
            said = headrace.failure("groups", *words)
            assert said.startswith("Group workers has active members (Stable): stop them first. ")
        [described] = headrace.json("groups", "describe", "workers")
        assert len(described["members"]) == 1
        assert described["partitions"][0]["member"] == described["members"][0]["id"]


def test_members_and_what_they_have(headrace: CommandLine) -> None:
    topic_with(headrace, "spread", 2, 2, 2)
    with member(headrace, "crew", "spread"), member(headrace, "crew-848", "spread", "consumer"):
        for group, kind in (("crew", "classic"), ("crew-848", "consumer")):
            [described] = headrace.json("groups", "describe", group)
            [one] = described["members"]
            assert one["assigned"] == [["spread", n] for n in range(3)]
            assert described["type"] == kind
            text = headrace("groups", "describe", group, "--members").splitlines()
            assert text[0].startswith(f"{group}: Stable, 1 member, {kind}, ")
            assert text[0].endswith("nothing committed yet, so no lag is known")
            assert text[1].split()[:2] == ["MEMBER", "INSTANCE"]
            assert text[2].split()[0] == one["id"]
            assert text[2].endswith("3  spread:0-2")


def test_a_group_that_is_being_shared_out_is_active(headrace: CommandLine) -> None:
    """librdkafka has no name for the states in which a group of the newer protocol then is."""
    topic_with(headrace, "shared-out", 1, 1)
    connection = ClientSettings({"bootstrap.servers": headrace.bootstrap})
    host, port = headrace.bootstrap.split(":")
    with Wire(connection, (host, int(port))) as wire:
        for name in ("first", "second"):  # the second's share has to be given up by the first
            joining = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                "reconciled",
                name,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=["shared-out"],
                topic_partitions=[],
            )
            assert wire.ask(consumer_group_heartbeat, joining).error_code == 0
        [listed] = [g for g in headrace.json("groups", "list") if g["group"] == "reconciled"]
        [described] = headrace.json("groups", "describe", "reconciled")
        assert listed["state"] == described["state"] in ("Assigning", "Reconciling")
        words = ("reset", "reconciled", "--topic", "shared-out", "--to-end")
        for more in ([], ["--execute"]):
            said = headrace.failure("groups", *words, *more)
            assert said.startswith(f"Group reconciled has active members ({listed['state']})")
        assert "active members" in headrace.failure("groups", "delete", "reconciled")


def test_groups_are_deleted_with_their_offsets(headrace: CommandLine) -> None:
    topic_with(headrace, "left", 1)
    commit(headrace, "leaver", "left", 1)
    assert headrace("groups", "delete", "leaver") == "Deleted leaver.\n"
    assert headrace.failure("groups", "delete", "leaver") == "There is no group leaver."


def test_of_several_groups_all_are_deleted_or_none(headrace: CommandLine) -> None:
    topic_with(headrace, "left-by-all", 1)
    for group in ("one", "two"):
        commit(headrace, group, "left-by-all", 1)
    said = headrace.failure("groups", "delete", "one", "nobody", "two")
    assert said == "There is no group nobody."
    assert places(headrace, "one") == places(headrace, "two") == [1]
    assert headrace.json("groups", "delete", "one", "two", "one") == {"deleted": ["one", "two"]}


def test_a_group_that_is_not_there_yet_gets_its_place(headrace: CommandLine) -> None:
    topic_with(headrace, "prepared", 3)
    words = ("groups", "reset", "later", "--topic", "prepared", "--to-offset", "2")
    assert "There is no group later yet: --execute creates it." in headrace.notes(*words)
    assert headrace.failure("groups", "describe", "later") == "There is no group later."
    assert "no group later yet" not in headrace.notes(*words, "--execute")
    assert places(headrace, "later") == [2]
    for words in (("reset", "nobody", "--all-topics", "--to-end"), ("delete", "nobody")):
        assert headrace.failure("groups", *words) == "There is no group nobody."


def test_what_is_left_of_a_topic_that_is_gone_has_no_lag(headrace: CommandLine) -> None:
    topic_with(headrace, "there-for-now", 1)
    with member(headrace, "lonely", "there-for-now"):
        headrace("topics", "delete", "there-for-now")
        [described] = headrace.json("groups", "describe", "lonely")
    assert all(one["lag"] is None for one in described["partitions"])


def test_one_way_to_say_where_and_one_to_say_what(headrace: CommandLine) -> None:
    headrace("topics", "create", "t", "--if-missing")
    for words in (
        ["--topic", "t"],
        ["--topic", "t", "--to-end", "--to-beginning"],
        ["--to-end"],
        ["--topic", "t", "--all-topics", "--to-end"],
        ["--topic", "t", "--by-duration", "soon"],
        ["--topic", "t", "--to-time", "2026"],
        ["--topic", "t:one", "--to-end"],
        ["--topic", "t", "--to-offset", "first"],
    ):
        assert headrace.exit_code("groups", "reset", "g", *words) == 2, words
    assert headrace.failure("groups", "reset", "g", "--topic", "none", "--to-end") == (
        "There is no topic none."
    )
    assert headrace.failure("groups", "reset", "g", "--topic", "t", "--shift-by", "1") == (
        "Group g has committed nothing in t-0."
    )


def transaction(headrace: CommandLine, topic: str, *, commit: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": headrace.bootstrap, "transactional.id": f"of-{topic}-{commit}"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "one", partition=0)
    producer.produce(topic, "two", partition=0)
    assert producer.flush(60) == 0
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def test_a_group_that_has_read_every_record_of_a_transaction_has_no_lag(
    headrace: CommandLine,
) -> None:
    headrace("topics", "create", "billed")
    transaction(headrace, "billed", commit=True)
    commit(headrace, "bills", "billed", 2)
    [described] = headrace.json("groups", "describe", "bills")
    assert described["partitions"][0]["end_offset"] == 3, "the marker has an offset"
    assert described["lag"] == 0
    assert ": Empty, 0 members, lag 0" in headrace("groups", "describe", "bills").replace(
        "classic, ", ""
    )
    transaction(headrace, "billed", commit=False)
    [described] = headrace.json("groups", "describe", "bills")
    assert described["lag"] == 0, "aborted records are not delivered"
    transaction(headrace, "billed", commit=True)
    [described] = headrace.json("groups", "describe", "bills")
    assert described["lag"] == 2
    [status] = headrace.json("backlog", "status", "bills", "--watch-for", "1ms")
    assert status["lag"] == 2
    commit(headrace, "bills", "billed", 8)
    said = headrace("backlog", "status", "bills", "--watch-for", "1ms")
    assert said.startswith("bills: 0 records behind; 0/s in, 0/s out; caught up")


def test_partitions_without_a_commit_have_rows_and_are_counted(headrace: CommandLine) -> None:
    topic_with(headrace, "partly", 5, 5, 5, 0)
    commit(headrace, "part", "partly", 1)
    [described] = headrace.json("groups", "describe", "part")
    assert [one["lag"] for one in described["partitions"]] == [4, None, None, 0]
    assert [one["unread"] for one in described["partitions"]] == [4, 5, 5, 0]
    assert (described["lag"], described["unknown_partitions"]) == (4, 2)
    said = headrace("groups", "describe", "part")
    assert "lag 4 and unknown in 2 partitions without a commit (10 records)" in said
    said = headrace("backlog", "status", "part", "--watch-for", "1ms")
    assert "4 records behind and unknown in 2 partitions without a commit (10 records)" in said
