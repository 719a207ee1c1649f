"""A mistyped topic or group: what the command suggests, and what produce does before it writes."""

from __future__ import annotations

from tests.sockets.cli.conftest import CommandLine


def test_a_missing_topic_is_answered_with_the_near_one(headrace: CommandLine) -> None:
    headrace("topics", "create", "orders-of-near-names")
    said = headrace.failure("topics", "describe", "orders-of-naer-names")
    assert said.startswith("There is no topic orders-of-naer-names.")
    assert said.endswith("Did you mean orders-of-near-names?")
    assert "Did you mean" not in headrace.failure("topics", "describe", "qqqqqqqqq")


def test_a_missing_group_is_answered_with_the_near_one(headrace: CommandLine) -> None:
    headrace("topics", "create", "near-names-read")
    headrace("groups", "reset", "billing-near", "--topic", "near-names-read",
             "--to-earliest", "--execute")  # fmt: skip
    said = headrace.failure("groups", "describe", "biling-near")
    assert said.endswith("Did you mean billing-near?")


def test_produce_warns_before_it_writes_to_a_name_one_letter_from_a_topic(
    headrace: CommandLine,
) -> None:
    headrace("topics", "create", "breakfast-of-near-names")
    typed = headrace.notes("produce", "breakfast-of-nearnames", stdin="coffee\n")
    assert "Did you mean breakfast-of-near-names?" in typed
    meant = headrace.notes("produce", "breakfast-of-near-names", stdin="coffee\n")
    assert "Did you mean" not in meant


def test_a_reset_takes_kafka_s_names_and_a_dry_run_that_is_asked_for(
    headrace: CommandLine,
) -> None:
    headrace("topics", "create", "reset-by-kafkas-names", "--partitions", "1")
    headrace("produce", "reset-by-kafkas-names", stdin="a\nb\n")
    reset = ("groups", "reset", "by-kafkas-names", "--topic", "reset-by-kafkas-names")
    for way, offset in (("--to-latest", 2), ("--to-earliest", 0)):
        plan = headrace.json(*reset, way, "--dry-run")
        assert not plan["executed"]
        assert [each["target"] for each in plan["partitions"]] == [offset]
    headrace.failure("groups", "describe", "by-kafkas-names")
