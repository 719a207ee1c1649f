"""`headrace topics` and `headrace doctor` on a real broker."""

from __future__ import annotations

import pytest

from tests.sockets.cli.conftest import CommandLine


def test_the_life_of_a_topic(headrace: CommandLine) -> None:
    assert headrace("topics", "create", "orders", "--partitions", "3") == "Created topic orders.\n"
    assert {"name": "orders", "partitions": 3, "replication": 1, "internal": False} in (
        headrace.json("topics", "list")
    )
    assert headrace.failure("topics", "create", "orders") == "Topic orders exists already."
    assert not headrace.json("topics", "create", "orders", "--if-missing")["created"]

    headrace("topics", "alter", "orders", "--partitions", "5", "--config", "retention.ms=1000")
    [described] = headrace.json("topics", "describe", "orders")
    assert len(described["partitions"]) == 5
    assert described["settings"]["retention.ms"] == {"value": "1000", "source": "topic"}
    assert "retention.ms=1000" in headrace("topics", "describe", "orders")

    headrace("topics", "alter", "orders", "--unset", "retention.ms")
    [described] = headrace.json("topics", "describe", "orders")
    assert described["settings"]["retention.ms"]["source"] == "default"

    assert headrace("topics", "delete", "orders") == "Deleted orders.\n"
    assert headrace.failure("topics", "describe", "orders") == "There is no topic orders."
    assert headrace.failure("topics", "delete", "orders") == "There is no topic orders."


@pytest.mark.integration
def test_describe_shows_offsets_and_sizes(headrace: CommandLine) -> None:
    headrace("produce", "sized", stdin="a\nb\nc\n")
    [described] = headrace.json("topics", "describe", "sized")
    [partition] = described["partitions"]
    assert (partition["start_offset"], partition["end_offset"]) == (0, 3)
    assert partition["size_bytes"] > 61
    assert partition["isr"] == partition["replicas"] == [partition["leader"]]


def test_what_the_broker_refuses_is_a_sentence(headrace: CommandLine) -> None:
    headrace("topics", "create", "fixed", "--partitions", "2")
    for words in (
        ["create", "not a name"],
        ["create", "wide", "--replication", "3"],
        ["alter", "fixed", "--partitions", "1"],
        ["alter", "fixed", "--config", "no.such.setting=1"],
        ["alter", "fixed", "--config", "retention.ms=soon"],
    ):
        sentence = headrace.failure("topics", *words)
        assert sentence[0].isupper(), sentence
        assert sentence.endswith("."), sentence
        assert "\n" not in sentence


def test_the_doctor_sees_the_broker_and_judges_a_topic(headrace: CommandLine) -> None:
    findings = {finding["about"]: finding for finding in headrace.json("doctor")}
    assert findings["cluster"]["state"] == "good"
    headrace("topics", "create", "precious")
    assert headrace.exit_code("doctor", "--topic", "precious") == 1
    assert headrace.failure("doctor", "--topic", "nowhere") == "There is no topic nowhere."


def test_a_slip_in_a_setting_is_refused_with_what_was_meant(headrace: CommandLine) -> None:
    headrace("topics", "create", "kept")
    meant = "Did you mean min.insync.replicas?"
    for words in (
        ["create", "slipped", "--config", "min.insync.replica=2"],
        ["alter", "kept", "--config", "min.insync.replica=2"],
        ["alter", "kept", "--unset", "min.insync.replica"],
    ):
        assert meant in headrace.failure("topics", *words)
    assert "slipped" not in headrace("topics", "list")


def test_companions_stand_beside_their_topic(headrace: CommandLine) -> None:
    names = ("sales", "sales.delay", "sales.delay.rejected", "sales.crew.retry", "sales.crew.dead")
    for name in (*names, "sales.crew.retry.delay", "sales.eu", "headrace.own"):
        headrace("topics", "create", name)
    lines = [one.split() for one in headrace("topics", "list").splitlines()]
    [beside] = [words[3:] for words in lines if words[0] == "sales"]
    assert beside == [
        ".crew.dead",
        ".crew.retry",
        ".crew.retry.delay",
        ".delay",
        ".delay.rejected",
    ]
    shown = [words[0] for words in lines]
    assert "sales.eu" in shown and "sales.delay" not in shown and "headrace.own" not in shown
    assert "keep 1 topic of their own: --all" in headrace.notes("topics", "list")
    everything = headrace("topics", "list", "--all")
    assert all(f"\n{name} " in everything for name in (*names, "headrace.own"))
    assert set(names) < {topic["name"] for topic in headrace.json("topics", "list")}


def test_a_topic_that_is_there_is_well_if_that_is_said(headrace: CommandLine) -> None:
    assert headrace.json("topics", "create", "twice", "--if-missing")["created"] is True
    assert headrace.json("topics", "create", "twice", "--if-missing")["created"] is False
    assert "exists" in headrace.failure("topics", "create", "twice")
