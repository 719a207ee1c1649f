"""`headrace dead-letters` on a real broker: seen, sent again to one group, put away, recorded."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from headrace.app import headers as names
from headrace.app.retries.dead_letters import why_headers
from headrace.client.connection import connection
from headrace.client.errors import Fenced, TransactionAborted
from headrace.client.producer.producer import Producer
from headrace.services.redrive.letters import Selection
from headrace.services.redrive.service import DeadLetters
from headrace.testing import Broker
from tests.sockets.cli.conftest import CommandLine

DEAD = "orders.billing.dead"
RETRY = "orders.billing.retry"


def park(broker: Broker, topic: str, count: int, **headers: str) -> None:
    """What an app writes when a record cannot be handled."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        why = why_headers(
            LookupError(f"no customer {number}"),
            attempts=8,
            first_at_ms=1_700_000_000_000,
            last_at_ms=1_700_000_600_000,
            origin=("orders", 1, 40 + number),
            group="billing",
        )
        own: list[Any] = [("tenant", b"a" if number % 2 else b"b")]
        more: list[Any] = [(name, text.encode()) for name, text in headers.items()]
        producer.produce(
            topic, f"order {number}", key=f"k{number}", partition=0, headers=own + why + more
        )
    assert producer.flush(60) == 0


@pytest.fixture
def letters(broker: Broker, headrace: CommandLine) -> CommandLine:
    for topic in (DEAD, RETRY):
        if topic in {each["name"] for each in headrace.json("topics", "list")}:
            headrace("topics", "delete", topic, "--yes")
        headrace("topics", "create", topic, "--partitions", "2")
    return headrace


def read(broker: Broker, headrace: CommandLine, topic: str) -> list[Any]:
    return headrace.json_lines("consume", topic)


def headers_of(record: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in record["headers"]}


def test_letters_are_listed_shown_and_chosen(broker: Broker, letters: CommandLine) -> None:
    park(broker, DEAD, 4)
    [topic] = [each for each in letters.json("dead-letters", "list") if each["topic"] == DEAD]
    assert (topic["origin_topic"], topic["group"]) == ("orders", "billing")
    assert (topic["waiting"], topic["settled"]) == (4, 0)

    shown = letters("dead-letters", "show", DEAD, "0/2")
    assert "LookupError: no customer 2" in shown
    assert "orders/1/42" in shown and "value: order 2" in shown

    def chosen(*options: str) -> list[str]:
        found = letters.json("dead-letters", "list", DEAD, *options)
        return [each["value"] for each in found]

    assert chosen("--error", "customer 3") == ["order 3"]
    assert chosen("--error", "LookupError", "--limit", "2") == ["order 0", "order 1"]
    assert chosen("--key", "k1") == ["order 1"]
    assert chosen("--header", "tenant=b") == ["order 0", "order 2"]
    assert chosen("--since", "2001-01-01", "--until", "2002-01-01") == []
    assert "no such letter" in letters.failure("dead-letters", "show", DEAD, "1/99")
    assert "PARTITION/OFFSET" in letters.failure("dead-letters", "show", DEAD, "seven")


def test_letters_go_to_the_group_that_failed_and_are_settled(
    broker: Broker, letters: CommandLine
) -> None:
    park(broker, DEAD, 3)
    letters("dead-letters", "redrive", DEAD, "0/0", "0/2")  # only shown
    assert read(broker, letters, RETRY) == []

    done = letters.json(
        "dead-letters", "redrive", DEAD, "0/0", "0/2", "--execute", "--by", "ada", "--reason", "ok"
    )
    assert done == {"done": 2, "refused": []}
    sent = read(broker, letters, RETRY)
    assert [each["value"] for each in sent] == ["order 0", "order 2"]
    assert {each["partition"] for each in sent} == {1}
    assert headers_of(sent[0]) == {"tenant": "b", names.ORIGIN: "orders/1/40", names.REDRIVES: "1"}

    assert [each["letter"] for each in letters.json("dead-letters", "list", DEAD)] == ["0/1"]
    all_of_them = letters.json("dead-letters", "list", DEAD, "--settled")
    entry = all_of_them[0]["settled"]
    assert (entry["action"], entry["by"], entry["reason"]) == ("redriven", "ada", "ok")

    again = letters.json("dead-letters", "redrive", DEAD, "--execute")
    assert again["done"] == 1  # what was settled is not sent twice
    assert len(read(broker, letters, RETRY)) == 3


@pytest.mark.integration
def test_a_value_can_be_mended_first(
    broker: Broker, letters: CommandLine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    park(broker, DEAD, 2)
    (tmp_path / "better").write_text("order mended")
    letters(
        "dead-letters",
        "redrive",
        DEAD,
        "0/0",
        "--value-file",
        str(tmp_path / "better"),
        "--execute",
    )
    monkeypatch.setenv("EDITOR", "sed -i s/order/edited/")
    letters("dead-letters", "redrive", DEAD, "0/1", "--edit", "--execute")
    assert [each["value"] for each in read(broker, letters, RETRY)] == ["order mended", "edited 1"]
    assert all(
        each["settled"]["edited"]
        for each in letters.json("dead-letters", "list", DEAD, "--settled")
    )
    monkeypatch.setenv("EDITOR", "false")
    park(broker, DEAD, 1)
    assert "editor" in letters.failure(
        "dead-letters", "redrive", DEAD, "0/2", "--edit", "--execute"
    )
    assert len(letters.json("dead-letters", "list", DEAD)) == 1


@pytest.mark.integration
def test_what_keeps_coming_back_is_refused(broker: Broker, letters: CommandLine) -> None:
    park(broker, DEAD, 1, **{names.REDRIVES: "3"})
    said = letters.failure("dead-letters", "redrive", DEAD, "--execute")
    assert "1 letter refused" in said
    assert read(broker, letters, RETRY) == []
    letters("dead-letters", "redrive", DEAD, "--execute", "--most-redrives", "9")
    [sent] = read(broker, letters, RETRY)
    assert headers_of(sent)[names.REDRIVES] == "4"


def test_letters_that_cannot_be_sent_are_refused_one_by_one(
    broker: Broker, letters: CommandLine
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(DEAD, b"of a stranger", partition=0)
    assert producer.flush(60) == 0
    park(broker, DEAD, 1)
    assert "1 letter refused" in letters.failure("dead-letters", "redrive", DEAD, "--execute")
    assert [each["value"] for each in read(broker, letters, RETRY)] == ["order 0"]
    letters("topics", "delete", RETRY, "--yes")
    park(broker, DEAD, 1)
    assert "refused" in letters.failure("dead-letters", "redrive", DEAD, "0/2", "--execute")
    assert len(letters.json("dead-letters", "list", DEAD)) == 2


def test_letters_are_put_away(broker: Broker, letters: CommandLine) -> None:
    park(broker, DEAD, 3)
    letters("dead-letters", "discard", DEAD, "--error", "customer 1", "--execute")
    assert len(letters.json("dead-letters", "list", DEAD)) == 2
    assert read(broker, letters, RETRY) == []


def test_a_second_redrive_takes_over_and_nothing_is_sent_twice(
    broker: Broker, letters: CommandLine
) -> None:
    park(broker, DEAD, 6)
    service = DeadLetters(connection(bootstrap=broker.bootstrap), sleep=lambda seconds: None)
    first = service.redrive(DEAD, Selection(), by="first", rate=5)  # one letter per transaction
    assert next(first).letter.offset == 0
    assert next(first).letter.offset == 1
    second = [step.letter.offset for step in service.redrive(DEAD, Selection(), by="second")]
    assert second == [2, 3, 4, 5]
    with pytest.raises((Fenced, TransactionAborted)):
        next(first)
    assert len(read(broker, letters, RETRY)) == 6


def test_a_redrive_keeps_to_its_rate(broker: Broker, letters: CommandLine) -> None:
    park(broker, DEAD, 6)
    waited: list[float] = []
    service = DeadLetters(connection(bootstrap=broker.bootstrap), sleep=waited.append)
    list(service.redrive(DEAD, Selection(), by="x", rate=10))
    assert sum(waited) == pytest.approx(0.6)


def test_a_topic_that_is_not_there_is_not_to_be_made(letters: CommandLine) -> None:
    said = letters.failure("dead-letters", "list", "orders")
    assert said == f"There is no topic orders. Dead letters are in {DEAD}."


def test_a_topic_of_ordinary_records_has_no_letters(broker: Broker, letters: CommandLine) -> None:
    letters("topics", "create", "ordinary", "--if-missing")
    for words in (("list", "ordinary"), ("redrive", "ordinary"), ("discard", "ordinary")):
        said = letters.failure("dead-letters", *words)
        assert said.startswith("ordinary is not a dead-letter topic: their names end in .dead.")


def test_one_attempt_is_one_attempt(broker: Broker, letters: CommandLine) -> None:
    park(broker, DEAD, 1, **{names.DEAD_ATTEMPTS: "1"})
    assert "after 1 attempt, the first" in letters("dead-letters", "show", DEAD, "0/0")


def test_a_record_of_another_program_is_not_shown_as_a_failure(
    broker: Broker, letters: CommandLine
) -> None:
    letters("topics", "create", "walking.dead")
    with Producer(broker.bootstrap) as producer:
        producer.send("walking.dead", b"hi")
    assert "unknown: no app wrote this record" in letters("dead-letters", "list", "walking.dead")
    shown = letters("dead-letters", "show", "walking.dead", "0/0")
    assert "None" not in shown.replace("key: None", "")
    assert "It does not name the group that failed" in shown
