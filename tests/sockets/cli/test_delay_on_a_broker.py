"""`headrace delay` and `produce --delay` on a broker with its delay service, on a clock of ours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.client.consumer.consumer import Consumer
from headrace.client.delay.instances import DelayInstances
from headrace.client.producer.producer import Producer
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine

pytestmark = pytest.mark.integration

PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(delay=True) as running:
        yield running


@pytest.fixture
def headrace(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setattr("headrace.operations.delayed.SOON_KNOWN_S", 0.5)
    return CommandLine(broker.bootstrap)


def waiting(headrace: CommandLine, topic: str, count: int) -> list[dict[str, Any]]:
    """All that waits of a topic, as soon as it is so many."""

    def look() -> list[dict[str, Any]] | None:
        rows = headrace.json("delay", "list", "--topic", topic, "--limit", "100")["rows"]
        return list(rows) if len(rows) == count else None

    found: list[dict[str, Any]] = until(look)
    return found


def test_two_commands_are_enough(headrace: CommandLine, broker: Broker) -> None:
    said = headrace("topics", "create", "news", "--partitions", "1", "--delayed")
    assert "headrace produce news --delay 10s" in said
    headrace("produce", "news", "--delay", "10s", stdin="hello\n")
    with Consumer(broker.bootstrap, topics=["news"], group="readers") as consumer:
        waiting(headrace, "news", 1)
        broker.advance(seconds=10)
        record = consumer.poll(PATIENCE_S)
    assert record is not None and record.value == b"hello"
    assert record.header("headrace-source") == b"news.delay/0/0"


def test_a_topic_that_exists_is_enabled_and_disabled(headrace: CommandLine) -> None:
    headrace("topics", "create", "bills", "--partitions", "2")
    assert "headrace delay enable bills" in headrace.failure("produce", "bills", "--delay", "1s")
    assert "headrace delay enable bills" in headrace.failure("delay", "list", "--topic", "bills")
    [pair] = headrace.json("delay", "enable", "bills")
    assert pair["companion"] == "bills.delay"
    headrace("produce", "bills", "--delay", "1d", stdin="one\n")
    headrace("delay", "disable", "bills")
    assert "takes no delayed" in headrace.failure("produce", "bills", "--delay", "1s")
    assert "headrace topics create nosuch --delayed" in headrace.failure(
        "produce", "nosuch", "--delay", "1s", stdin="x\n"
    )
    assert "headrace delay enable bills" in headrace.failure("delay", "disable", "bills")
    headrace("delay", "enable", "bills")
    assert waiting(headrace, "bills", 1)[0]["size"] == 3


def test_one_message_is_shown_rescheduled_and_cancelled(headrace: CommandLine) -> None:
    headrace("topics", "create", "orders", "--partitions", "3", "--delayed")
    order = ("produce", "orders", "-K", ":", "--delay", "30m", "--id", "order-42")
    headrace(*order, "-H", "trace=7", stdin='anna:{"total": 12}\n')
    waiting(headrace, "orders", 1)  # the service has read it
    shown = headrace.json("delay", "show", "orders", "order-42")
    assert (shown["key"], shown["value"]) == ("anna", '{"total": 12}')
    assert shown["headers"] == [{"name": "trace", "value": "7"}]
    assert shown["due_ms"] - shown["accepted_ms"] == 30 * 60_000
    text = headrace("delay", "show", "orders", "order-42")
    assert "in 29m" in text and '{"total": 12}' in text and "trace: 7" in text

    moved = headrace.json("delay", "reschedule", "orders", "order-42", "--delay", "2h")
    assert moved["due_ms"] - moved["was_ms"] >= 90 * 60_000
    [row] = headrace.json("delay", "list", "--topic", "orders", "--key", "anna")["rows"]
    assert (row["id"], row["due_ms"]) == ("order-42", moved["due_ms"])
    again = headrace.json("delay", "show", "orders", "order-42")
    assert (again["value"], again["headers"]) == (shown["value"], shown["headers"])

    assert "Cancelled" in headrace("delay", "cancel", "orders", "order-42")
    assert "Nothing waits" in headrace.failure("delay", "show", "orders", "order-42")
    assert "Nothing waits" in headrace.failure("delay", "cancel", "orders", "order-42")
    assert headrace.exit_code("delay", "cancel", "orders", "order-42", "--key", "anna") == 1


def test_a_cancel_that_comes_too_late_is_told_so(headrace: CommandLine, broker: Broker) -> None:
    headrace("topics", "create", "late", "--partitions", "1", "--delayed")
    headrace("produce", "late", "-p", "0", "--delay", "0", "--id", "a", stdin="v\n")
    with Consumer(broker.bootstrap, topics=["late"], group="late") as consumer:
        assert consumer.poll(PATIENCE_S) is not None
    done = headrace._run(("delay", "cancel", "late", "a", "-p", "0", "--json"), "")
    assert done.exit_code == 1 and '"too-late"' in done.stdout


def test_a_list_comes_in_pages_without_gap_or_double(headrace: CommandLine) -> None:
    headrace("topics", "create", "many", "--partitions", "4", "--delayed")
    lines = "".join(f"k{n}:v{n}\n" for n in range(25))
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(days=365)
    due_ms, later_ms = (int(t.timestamp() * 1000) for t in (due, due + timedelta(days=1)))
    headrace("produce", "many", "-K", ":", "--deliver-at", str(due_ms), stdin=lines)
    later = (due + timedelta(days=1)).isoformat()
    headrace("produce", "many", "-K", ":", "--deliver-at", later, stdin="z:last\n")
    waiting(headrace, "many", 26)
    seen, after = [], []
    while True:
        page = headrace.json("delay", "list", "-t", "many", "-n", "4", *after)
        seen += [row["key"] for row in page["rows"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert sorted(seen[:-1]) == sorted(f"k{n}" for n in range(25))
    assert seen[-1] == "z"
    in_time = ("--from", str(due_ms + 1), "--to", str(later_ms + 1))
    assert [r["key"] for r in headrace.json("delay", "list", "-t", "many", *in_time)["rows"]] == [
        "z"
    ]
    assert headrace.json("delay", "list", "-t", "many", "--to", "+1h")["rows"] == []
    [row] = headrace.json("delay", "list", "-t", "many", "--key", "k7", "--values")["rows"]
    assert row["value"] == "v7"
    assert "in 52w" in headrace("delay", "list", "-t", "many", "-n", "1")


def test_stats_tell_what_waits_and_who_delivers(headrace: CommandLine, broker: Broker) -> None:
    headrace("topics", "create", "counted", "--partitions", "2", "--delayed")
    headrace("produce", "counted", "--delay", "45s", stdin="a\nb\n")
    headrace("produce", "counted", "--delay", "1d", stdin="c\n")

    def look() -> dict[str, Any] | None:
        told = headrace.json("delay", "stats")
        [instance] = told["instances"]
        for topic in told["topics"]:
            if (topic["topic"], topic["pending"], topic["state"]) == ("counted", 3, "delivering"):
                return dict(topic) if instance["partitions"]["counted"] == [0, 1] else None
        return None

    assert until(look)["due_next_minute"] == 2
    text = headrace("delay", "stats")
    assert "counted 0-1" in text and "DUE IN 1 MIN" in text and "testing" in text


def test_a_missing_target_is_reported_and_not_made(headrace: CommandLine, broker: Broker) -> None:
    headrace("topics", "create", "lost", "--partitions", "1", "--delayed")
    headrace("topics", "delete", "lost", "--yes")

    def look() -> list[str]:
        told = headrace.json("delay", "stats")
        lost = [
            p for topic in told["topics"] if topic["topic"] == "lost" for p in topic["partitions"]
        ]
        return [p["problem"] for p in lost if p["problem"]]

    assert "lost" in until(look)[0]
    assert "lost" not in Topics(connection(bootstrap=broker.bootstrap)).cluster.topics
    headrace("topics", "create", "lost", "--partitions", "1")
    until(lambda: not look())


@pytest.mark.parametrize(
    "words",
    [
        ("produce", "orders", "--delay", "soon"),
        ("produce", "orders", "--delay", "1s", "--deliver-at", "now"),
        ("produce", "orders", "--deliver-at", "tomorrow"),
        ("produce", "orders", "--deliver-at", "2100-01-01"),
        ("delay", "list", "--from", "yesterday"),
        ("delay", "reschedule", "orders", "order-42"),
        ("delay", "serve", "--listen", "9095"),
    ],
)
def test_what_makes_no_sense_is_wrong_use(headrace: CommandLine, words: tuple[str, ...]) -> None:
    assert headrace.exit_code(*words) == 2


def test_an_id_names_one_message_in_one_place(headrace: CommandLine) -> None:
    headrace("topics", "create", "named", "--partitions", "2", "--delayed")
    named = ("produce", "named", "--delay", "1h", "--id", "a")
    assert "give the record a key" in headrace.failure(*named, stdin="v\n")
    assert "a second line came" in headrace.failure(*named, "-K", ":", stdin="k:v\nk:w\n")
    for partition in "01":
        headrace(*named, "-p", partition, stdin="v\n")
    waiting(headrace, "named", 2)
    assert "waits in partitions 0, 1" in headrace.failure("delay", "show", "named", "a")
    assert "Cancelled" in headrace("delay", "cancel", "named", "a", "-p", "1")


def test_without_a_service_the_commands_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.client.delay.instances.JUST_STARTING_S", 0.0)
    with Broker() as alone:
        headrace = CommandLine(alone.bootstrap)
        assert "delay enable TOPIC" in headrace.failure("delay", "stats")
        headrace("topics", "create", "orders", "--partitions", "1", "--delayed")
        assert "headrace delay serve" in headrace.failure("delay", "stats")
        assert "headrace delay serve" in headrace.failure("delay", "list")
        cancel = ("delay", "cancel", "orders", "a", "--key", "k", "--timeout", "0.5")
        assert "takes effect as soon as one does" in headrace.failure(*cancel)
        assert DelayInstances(connection(bootstrap=alone.bootstrap)).all() == []


def test_what_was_refused_is_listed_with_its_reason(broker: Broker, headrace: CommandLine) -> None:
    headrace("topics", "create", "refusals", "--delayed")
    assert headrace.json("delay", "rejected", "refusals") == []
    with Producer(broker.bootstrap) as producer:
        told = {"headrace-rejected-reason": "no such time zone", "headrace-id": "report"}
        producer.send("refusals.delay.rejected", b"v", key=b"k", headers=told).result(60)
    [row] = headrace.json("delay", "rejected", "refusals")
    assert (row["reason"], row["id"], row["key"]) == ("no such time zone", "report", "k")
    assert "no such time zone" in headrace("delay", "rejected", "refusals")
    for bad in (["--cron", "every day"], ["--cron", "0 9 * * *", "--cron-zone", "Mars/Base"]):
        assert headrace.exit_code("produce", "refusals", *bad, "--id", "a", "--partition", "0") == 2
    for bad in (["--delay", "1s", "--cron", "0 9 * * *"], ["--cron-zone", "Europe/Berlin"]):
        assert headrace.exit_code("produce", "refusals", *bad) == 2


def test_deleting_a_topic_names_the_companions_that_keep_its_delayed_messages(
    headrace: CommandLine,
) -> None:
    headrace("topics", "create", "going", "--delayed")
    companions = ["going.delay", "going.delay.rejected", "going.delay.outcomes"]
    said = headrace.notes("topics", "delete", "going", "--yes")
    assert f"headrace topics delete {' '.join(companions)}" in said
    assert headrace.json("topics", "delete", *companions, "--yes")["companions_left"] == []


def test_a_topic_is_deleted_with_all_that_stands_beside_it(headrace: CommandLine) -> None:
    headrace("topics", "create", "leaving", "--delayed")
    for beside in ("leaving.billing.retry", "leaving.billing.dead", "leaving-not"):
        headrace("topics", "create", beside)
    told = headrace.json("topics", "delete", "leaving", "leaving.delay", "--with-companions", "-y")
    assert told["companions_left"] == [] and len(told["deleted"]) == 6
    left = [topic["name"] for topic in headrace.json("topics", "list")]
    assert [name for name in left if name.startswith("leaving")] == ["leaving-not"]
