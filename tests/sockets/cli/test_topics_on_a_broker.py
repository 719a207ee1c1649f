"""`headrace topics` and `headrace doctor` on a real broker."""

from __future__ import annotations

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
