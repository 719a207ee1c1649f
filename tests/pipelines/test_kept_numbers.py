"""Numbers and names of JSON in a lake table: every digit and every field, or a dead letter."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.pipelines import Topic
from headrace.pipelines.rows import record_rows
from headrace.pipelines.shipped.topic_to_lake import Lake

pytestmark = pytest.mark.timeout(1200)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"


class LakeTable:
    """A table without a disk: its columns, and rows and reasons of the batches so far."""

    def __init__(self, spark: SparkSession, schema: str | None = None) -> None:
        self.spark = spark
        self.growth = Lake(topic="t", schema=schema).growth()
        self.columns: StructType | None = None
        self.rows: list[dict[str, Any]] = []
        self.reasons: list[str] = []
        self.notes: list[str] = []
        self.offset = 0

    def take(self, *values: str) -> None:
        records = []
        for value in values:
            at = BEGAN + timedelta(seconds=self.offset)
            records.append((None, value.encode(), "t", 0, self.offset, at))
            self.offset += 1
        frame = self.spark.createDataFrame(records, COLUMNS)
        found = self.growth.parsed(frame, self.columns, self.notes.append)
        rows = self.growth.rows(found)
        self.columns = rows.schema
        self.rows += [row.asDict(True) for row in rows.collect()]
        bad = found.where(f"{record_rows.WHY} IS NOT NULL").orderBy("offset")
        self.reasons += [row[0] for row in bad.select(record_rows.reason(bad)).collect()]

    def types(self) -> dict[str, str]:
        assert self.columns is not None
        named = {one.name: one.dataType.simpleString() for one in self.columns.fields}
        return {name: kind for name, kind in named.items() if not name.startswith("_record")}

    def values(self, name: str) -> list[Any]:
        ordered = sorted(self.rows, key=lambda row: row["_record_offset"])
        return [row.get(name) for row in ordered]


def fields(spark: SparkSession, **values: Sequence[str]) -> LakeTable:
    """One batch; each name with the numbers of its records, as JSON text."""
    table = LakeTable(spark)
    count = len(next(iter(values.values())))
    table.take(
        *("{" + ", ".join(f'"{n}": {v[i]}' for n, v in values.items()) + "}" for i in range(count))
    )
    return table


def test_the_first_batch_chooses_a_column_that_holds_each_digit(spark: SparkSession) -> None:
    table = fields(
        spark,
        id=("12345678901234567890", "7"),
        safe=("9007199254740993", "1"),
        mixed=("9007199254740993", "0.5"),
        price=("5", "5.25"),
        point=("5", "5.0"),
        python=("0.30000000000000004", "1.2345678901234567e-20"),
        zero=("-0.0", "1.5"),
        long=("0.12345678901234567890123", "2"),
        power=("9007199254740993", "1e3"),
        list=("[1, 12345678901234567890]", "[0.5]"),
        within=('{"n": 18446744073709551615}', '{"n": 1}'),
        any=('"a"', "12345678901234567890"),
    )
    assert table.types() == {
        "any": "string",
        "id": "decimal(38,0)",
        "list": "array<decimal(38,18)>",
        "long": "decimal(38,23)",
        "mixed": "decimal(38,18)",
        "point": "double",
        "power": "string",
        "price": "double",
        "python": "double",
        "safe": "bigint",
        "within": "struct<n:decimal(38,0)>",
        "zero": "double",
    }
    assert table.reasons == []
    assert [int(one) for one in table.values("id")] == [12345678901234567890, 7]
    assert [str(one.normalize()) for one in table.values("mixed")] == ["9007199254740993", "0.5"]
    assert table.values("python") == [0.30000000000000004, 1.2345678901234567e-20]
    assert str(table.values("long")[0]) == "0.12345678901234567890123"
    assert table.values("power") == ["9007199254740993", "1000.0"]
    assert table.values("any") == ["a", "12345678901234567890"]
    assert int(table.values("list")[0][1]) == 12345678901234567890


def test_a_number_that_its_column_would_round_is_a_dead_letter(spark: SparkSession) -> None:
    table = LakeTable(spark)
    table.take('{"n": 0.5, "t": "x", "l": 1, "o": [{"n": 0.5}]}')
    assert table.types() == {
        "l": "bigint",
        "n": "double",
        "o": "array<struct<n:double>>",
        "t": "string",
    }
    many = "1" + "0" * 30 + "." + "1" * 10
    table.take(
        '{"n": 9007199254740993}',
        '{"n": 9007199254740992, "t": "9007199254740993.5 and \\"9007199254740993.5\\""}',
        '{"o": [{"n": 0.25}, {"n": 0.1234567890123456789}]}',
        '{"t": 9007199254740993}',
        '{"t": 9007199254740993.5}',
        '{"t": {"a": [9007199254740993.5]}}',
        '{"l": 12345678901234567890}',
        '{"n": 1e400}',
        '{"t": 1e400}',
        '{"t": 1e-400}',
        f'{{"t": {many}}}',
        '{"t": 9007199254740993e1}',
        '{"n": 1e3, "t": 1e3}',
    )
    assert table.values("n") == [0.5, 9007199254740992.0, None, 1000.0]
    assert table.values("t")[1:] == [
        '9007199254740993.5 and "9007199254740993.5"',
        "9007199254740993",
        "1000.0",
    ]
    assert table.reasons == [
        "the field n is 9007199254740993, which its column double would round",
        'the field o is [{"n":0.25},{"n":0.1234567890123456789}], '
        "which its column array<struct<n:double>> would round",
        "the field t is 9007199254740993.5, which its column string would round",
        'the field t is {"a":[9007199254740993.5]}, which its column string would round',
        "the field l is 12345678901234567890, which is no bigint",
        "the number n is too large for its type",
        *(
            f"the value holds the number {one}, which no column can hold exactly: send it as text"
            for one in ("1e400", "1e-400", many, "9007199254740993e1")
        ),
    ]


def test_a_double_that_is_asked_for_may_round(spark: SparkSession) -> None:
    table = LakeTable(spark, schema="n DOUBLE")
    table.take('{"n": 9007199254740993}')
    assert (table.values("n"), table.reasons) == ([9007199254740992.0], [])


def test_a_decimal_with_an_exponent_is_taken_if_no_digit_is_lost(spark: SparkSession) -> None:
    source = Topic("t", schema="d DECIMAL(10,2)")
    values = ["1e3", '"1e3"', "1.25e1", "12E-1", "1.5", "1e-3", '"1e-3"', "1e9", "1e400"]
    values += ["0." + "1" + "0" * 40 + "1", "1.0000000000000000001e3"]
    frame = spark.createDataFrame(
        [(None, b'{"d": %s}' % v.encode(), "t", 0, n, BEGAN) for n, v in enumerate(values)], COLUMNS
    )
    found = record_rows.parsed(frame, source).orderBy("offset").collect()
    good = [str(row[record_rows.PARSED]["d"]) for row in found if row[record_rows.WHY] is None]
    assert good == ["1000.00", "1000.00", "12.50", "1.20", "1.50"]
    assert found[5][record_rows.WHY] == "d is 0.001, which DECIMAL(10,2) cannot hold exactly"


def test_names_that_differ_only_in_case_are_dead_letters_not_left_out(spark: SparkSession) -> None:
    table = LakeTable(spark)
    table.take(
        *(f'{{"a": {n}, "o": [{{"x": 1}}]}}' for n in range(4)),
        '{"A": 9}',
        '{"a": 4, "o": [{"X": 1}]}',
        '{"a": 5, "A": null}',
    )
    assert table.types() == {"a": "bigint", "o": "array<struct<x:bigint>>"}
    assert table.values("a") == [0, 1, 2, 3]
    upper = "the field A differs from the column a only in case, and tables do not tell them apart"
    assert table.reasons == [
        upper,
        "the field o.X differs from the column x only in case, and tables do not tell them apart",
        upper,
    ]
    table.take('{"a": 6}', '{"A": 7}', '{"_file": 1, "a": 8}')
    assert table.values("a")[4:] == [6, 8]
    assert table.reasons[3:] == [upper]
    assert table.notes == [
        "fields that cannot be columns beside others: o.X, A",
        "fields that cannot be columns beside others: _file",
    ]


# ---- drawn from seeds, with plain Python as the judge

BEGIN = int(os.environ.get("PIPELINE_SEED", "0"))
SEEDS = tuple(range(BEGIN, BEGIN + int(os.environ.get("PIPELINE_SEEDS", "0")))) or (1,)
BATCHES, RECORDS = 3, 12
NAMES = ("a", "b", "B", "list", "within")


def drawn_number(chance: random.Random) -> str:
    """JSON text of a number: small, at the edges of types, long, tiny, huge."""
    edge = chance.choice([0, 2**31, 2**53, 2**63, 2**64, 10**37, 10**38, 10**45])
    whole = chance.choice([chance.randint(-9, 9), edge + chance.randint(-2, 2), -edge])
    digits = "".join(chance.choices("0123456789", k=chance.choice([1, 2, 9, 17, 30, 45])))
    return chance.choice(
        [
            str(whole),
            str(whole),
            f"{whole}.{digits}",
            f"{chance.randint(0, 9)}.{digits}",
            repr(chance.random() * 10 ** chance.randint(-30, 30)),
            f"{chance.randint(1, 99)}e{chance.randint(-420, 420)}",
            f"{whole}e{chance.randint(-3, 3)}",
        ]
    )


def drawn_value(chance: random.Random) -> dict[str, Any]:
    """Numbers are `Token`s, so that they can be written as they are."""
    value: dict[str, Any] = {}
    for name in chance.sample(NAMES[:3], chance.randint(0, 2)):
        value[name] = chance.choice(
            [Token(drawn_number(chance)), Token(drawn_number(chance)), None, "text 1.5", True]
        )
    if chance.random() < 0.3:
        value["list"] = [Token(drawn_number(chance)) for _ in range(chance.randint(0, 3))]
    if chance.random() < 0.3:
        value["within"] = {"n": Token(drawn_number(chance))}
    return value


class Token(str):
    """A number as it is written."""


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{n}": {written(one)}' for n, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return str(value) if isinstance(value, Token) else json.dumps(value)


def is_kept(sent: Any, held: Any) -> bool:
    """Whether a column has all that was sent. A text column has other values as JSON."""
    if sent is None:
        return held is None
    if isinstance(held, str):
        if isinstance(sent, str) and not isinstance(sent, Token):
            return sent == held
        return bool(as_numbers(sent) == as_numbers(json.loads(held, parse_float=Decimal)))
    if isinstance(sent, Token):
        return held is not None and Decimal(sent) == Decimal(str(held))
    if isinstance(sent, list):
        return isinstance(held, list) and len(sent) == len(held) and all(map(is_kept, sent, held))
    if isinstance(sent, dict):
        return isinstance(held, dict) and all(is_kept(one, held.get(n)) for n, one in sent.items())
    return bool(sent == held)


def as_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_numbers(one) for one in value]
    return Decimal(value) if isinstance(value, Token) else value


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_whole_in_the_table_or_a_dead_letter(seed: int, spark: SparkSession) -> None:
    chance, table, sent = random.Random(seed), LakeTable(spark), []
    for _ in range(BATCHES):
        batch = [drawn_value(chance) for _ in range(RECORDS)]
        table.take(*map(written, batch))
        sent += batch
    held = {row["_record_offset"]: row for row in table.rows}
    assert len(held) == len(table.rows)
    assert len(held) + len(table.reasons) == len(sent)
    assert held, "nothing was kept"
    for offset, row in held.items():
        for name, value in sent[offset].items():
            said = (seed, offset, name, written(value), row.get(name), table.types())
            assert is_kept(value, row.get(name)), said
