"""What a batch can touch of a table, in words that mean the same in every zone and setting."""

from __future__ import annotations

import pytest

from headrace.pipelines.sinks.touched import MOST_VALUES, condition, literal, shown
from headrace.pipelines.spark.shape import Node, takes_every_record
from tests.unit.pipelines.test_plans import plan

MINUTE_US = 60_000_000


def test_a_span_of_times_is_told_in_utc() -> None:
    keys = [(0,), (MINUTE_US,), (5 * MINUTE_US + 1,)]
    assert condition(["minute"], ["timestamp"], keys, ()) == (
        "t.`minute` >= TIMESTAMP'1970-01-01 00:00:00+00:00' AND "
        "t.`minute` <= TIMESTAMP'1970-01-01 00:05:00.000001+00:00'"
    )


def test_partitions_are_told_one_by_one_unless_they_are_many() -> None:
    two = [(20_000, "a"), (20_000, "c")]
    said = condition(["day", "service"], ["date", "string"], two, ("day", "service"))
    assert said == "t.`day` IN (DATE'2024-10-04') AND t.`service` IN ('a', 'c')"
    many = [(n,) for n in range(MOST_VALUES + 1)]
    assert condition(["n"], ["bigint"], many, ("n",)) == f"t.`n` >= 0 AND t.`n` <= {MOST_VALUES}"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["it's"]),
        ("string", ["back\\slash"]),
        ("string", ["a", None]),
        ("double", [1.0]),
        ("struct<a:int>", [{"a": 1}]),
        ("timestamp", [10**18]),
        ("date", [10**8]),
    ],
)
def test_what_could_be_said_wrongly_is_not_said(kind: str, values: list[object]) -> None:
    seen = [(repr(one) if isinstance(one, dict) else one,) for one in values]
    assert condition(["k"], [kind], seen, ()) is None


def test_the_other_columns_of_a_key_are_told_still() -> None:
    said = condition(["a", "b"], ["string", "int"], [("it's", 3)], ())
    assert said == "t.`b` >= 3 AND t.`b` <= 3"


def test_a_name_is_quoted() -> None:
    assert condition(["a`b"], ["int"], [(1,)], ()) == "t.`a``b` >= 1 AND t.`a``b` <= 1"


def test_values_are_shown_as_people_know_them() -> None:
    assert [shown(0, "timestamp"), shown(0, "date"), shown("x", "string"), shown(None, "int")] == [
        "1970-01-01 00:00:00 UTC",
        "1970-01-01",
        "'x'",
        "null",
    ]
    assert literal(10**18, "timestamp") is None


def test_which_functions_take_every_record() -> None:
    assert takes_every_record(plan("Project", "Filter", "Aggregate", "Project"))
    assert takes_every_record(plan("Project", "Deduplicate"))
    assert not takes_every_record(plan("Project", "LocalLimit", "GlobalLimit"))
    assert not takes_every_record(plan("MapInPandas", "Aggregate"))
    static = Node("LogicalRelation", False)
    assert not takes_every_record(Node("Join", True, [plan("Project"), static]))
    assert not takes_every_record(Node("Union", True, [plan("Project"), plan("Project")]))
