"""Tables for pipes, sizes for people."""

from __future__ import annotations

import json

import pytest

from headrace.cli import output
from headrace.client.admin.topics import TopicSummary


def test_a_table_into_a_pipe_is_padded_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("topic", "partitions"), [("orders", 12), ("a", 3), ("b", None)])
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC   PARTITIONS",
        "orders          12",
        "a                3",
        "b                -",
    ]


def test_an_empty_table_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("topic", "size"), [])
    assert capsys.readouterr().out == "TOPIC  SIZE\n"


def test_dataclasses_become_json_objects(capsys: pytest.CaptureFixture[str]) -> None:
    output.answer_json([TopicSummary("orders", 3, 1, False)])
    assert json.loads(capsys.readouterr().out) == [
        {"name": "orders", "partitions": 3, "replication": 1, "internal": False}
    ]


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (20 << 30, "20 GiB"),
        (3 << 40, "3.0 TiB"),
    ],
)
def test_sizes_for_people(amount: int, words: str) -> None:
    assert output.size(amount) == words


def test_counting_nouns() -> None:
    assert output.count(1, "record") == "1 record"
    assert output.count(300_000, "record") == "300,000 records"
