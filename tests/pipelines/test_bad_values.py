"""Values that Spark's JSON functions would take and lose a part of: each has a reason instead."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipelines import Topic, reading

pytestmark = pytest.mark.timeout(1200)

RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
WRITTEN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = (
    "id LONG NOT NULL, small INT, price DOUBLE, ratio FLOAT, money DECIMAL(10,2), name STRING, "
    "at TIMESTAMP, tags ARRAY<LONG>, "
    "place STRUCT<city: STRING NOT NULL, zip: LONG>, "
    "lines ARRAY<STRUCT<sku: STRING NOT NULL, price: DOUBLE>>, "
    "labels MAP<STRING, DOUBLE>"
)
WRONG, MORE = "not JSON of the schema", "something stands behind"

BAD = {
    # more than one
    b'{"id": 1}{"id": 2}': MORE,
    b'{"id": 1}\n{"id": 2}': MORE,
    b'{"id": 1}, {"id": 2}': MORE,
    b'{"id": 1} and so on': MORE,
    b'{"id": 1}}': MORE,
    b'{"id": 1}]': MORE,
    b' \n[{"id": 1}, {"id": 2}]': "is a list",
    b"[]": "is a list",
    # no object, no JSON, no text
    b"null": WRONG,
    b"7": WRONG,
    b'"text"': WRONG,
    b" ": WRONG,
    b'{"id": 1': WRONG,
    b'\xef\xbb\xbf{"id": 1}': WRONG,
    '{"id": 1}'.encode("utf-16"): "not UTF-8",
    b'{"id": 1, "name": "caf\xe9"}': "not UTF-8",
    # numbers
    b'{"id": 99999999999999999999}': WRONG,
    b'{"id": 1, "small": 3000000000}': WRONG,
    b'{"id": 1.5}': WRONG,
    b'{"id": "1"}': WRONG,
    b'{"id": ""}': WRONG,
    b'{"id": true}': WRONG,
    b'{"id": 1, "price": NaN}': WRONG,
    b'{"id": 1, "price": "NaN"}': WRONG,
    b'{"id": 1, "price": -Infinity}': WRONG,
    b'{"id": 1, "price": 1e999}': "the number price is too large",
    b'{"id": 1, "price": -1e999}': "the number price is too large",
    b'{"id": 1, "ratio": 1e39}': "the number ratio is too large",
    b'{"id": 1, "money": 123456789012}': WRONG,
    b'{"id": 1, "labels": {"a": 1, "b": 1e999}}': "the number labels is too large",
    # times
    b'{"id": 1, "at": "yesterday"}': WRONG,
    b'{"id": 1, "at": 1767225600000}': "at is not in the years 1 to 9999",
    b'{"id": 1, "at": "+10000-01-01T00:00:00Z"}': "at is not in the years 1 to 9999",
    b'{"id": 1, "at": "-0001-01-01T00:00:00Z"}': "at is not in the years 1 to 9999",
    # names
    b"{}": "the field id is missing",
    b'{"id": null}': "the field id is missing",
    b'{"ID": 1}': "the field id is missing",
    b'{"id": 1, "id": null}': "the field id is missing",
    # within
    b'{"id": 1, "tags": [1, "two"]}': WRONG,
    b'{"id": 1, "tags": 1}': WRONG,
    b'{"id": 1, "place": "Bern"}': WRONG,
    b'{"id": 1, "place": []}': WRONG,
    b'{"id": 1, "place": {"city": "Bern", "zip": "3000"}}': WRONG,
    b'{"id": 1, "place": {"zip": 3000}}': "the field place.city is missing",
    b'{"id": 1, "lines": [{"sku": "a"}, {"price": 1}]}': "the field lines.sku is missing",
    b'{"id": 1, "lines": [{"sku": "a", "price": 1e999}]}': "the number lines.price is too large",
}

GOOD: dict[bytes, dict[str, Any]] = {
    b' {"id": 1} \r\n': {"id": 1},
    b'{"id": 9223372036854775807, "small": -2147483648}': {"id": 2**63 - 1, "small": -(2**31)},
    b'{"id": 1, "price": 1e308, "money": 1.5}': {"price": 1e308},
    # The last of a name that comes twice; what the schema does not name is left out.
    b'{"id": 1, "id": 2}': {"id": 2},
    b'{"id": 1, "Name": "x", "other": {"id": 5}}': {"id": 1, "name": None},
    b'{"id": 1, "name": "}{ ][ ,"}': {"name": "}{ ][ ,"},
    b'{"id": 1, "name": {"a": [1]}}': {"name": '{"a":[1]}'},  # whole, as text
    '{"id": 1, "name": "Zürich ☃"}'.encode(): {"name": "Zürich ☃"},
    b'{"id": 1, "at": "0001-01-01T00:00:00Z"}': {"at": "0001-01-01 00:00:00"},
    b'{"id": 1, "at": "9999-12-31T23:59:59.999999Z"}': {"at": "9999-12-31 23:59:59.999999"},
    b'{"id": 1, "at": 1767225600}': {"at": "2026-01-01 00:00:00"},
    b'{"id": 1, "place": null, "lines": [], "labels": {}, "tags": [null]}': {"place": None},
    b'{"id": 1, "lines": [{"sku": "a", "price": null}]}': {"id": 1},
}


def looked_at(
    spark: SparkSession, topic: Topic, values: list[bytes]
) -> list[tuple[str | None, dict[str, Any] | None]]:
    """Of each value the reason why it is bad, or the row, its times as text."""
    rows = [(None, value, "t", 0, n, WRITTEN, None) for n, value in enumerate(values)]
    found = reading.parsed(spark.createDataFrame(rows, RECORDS), topic).orderBy("offset")
    bad = [row[0] for row in found.select(reading.WHY).collect()]
    kept = reading.good(found, topic)
    if "at" in kept.columns:  # Python has no time so early
        kept = kept.withColumn("at", kept["at"].cast("string"))
    columns = [name for name in kept.columns if name != "record"]
    rows_of = {row["record"]["offset"]: row for row in kept.select(*columns, "record").collect()}
    return [
        (why, None if n not in rows_of else {name: rows_of[n][name] for name in columns})
        for n, why in enumerate(bad)
    ]


def test_nothing_of_a_value_is_lost_without_a_reason(spark: SparkSession) -> None:
    topic = Topic("t", schema=SCHEMA, record=True)
    answers = looked_at(spark, topic, list(BAD))
    for (value, reason), (why, row) in zip(BAD.items(), answers, strict=True):
        assert why is not None and reason in why, (value, why, row)
        assert row is None
    answers = looked_at(spark, topic, list(GOOD))
    for (value, wanted), (why, row) in zip(GOOD.items(), answers, strict=True):
        assert why is None and row is not None, (value, why)
        assert {name: row[name] for name in wanted} == wanted, value


def test_values_of_any_shape_are_one_value_and_text(spark: SparkSession) -> None:
    topic = Topic("t", schema="VARIANT", record=True)
    good = [b'{"a": 1}', b"[1, 2]", b"7", b"null", b'"}{"', b' {"a": {"a": 1}}\n']
    assert [why for why, _ in looked_at(spark, topic, good)] == [None] * len(good)
    bad = {
        b'{"a": 1}{"a": 2}': MORE,
        b"[1] [2]": MORE,
        b'{"a": 1]': "not JSON",
        b"1, 2": "not JSON",
        b'{"a": 1, "a": 2}': "not JSON",  # VARIANT has no two fields of a name
        b'{"a": NaN}': "not JSON",
        b'{"a": "caf\xe9"}': "not UTF-8",
        b"": "not JSON",
    }
    for (value, reason), (why, _) in zip(
        bad.items(), looked_at(spark, topic, list(bad)), strict=True
    ):
        assert why is not None and reason in why, (value, why)


def test_an_event_time_in_milliseconds_is_said_to_be_one(spark: SparkSession) -> None:
    topic = Topic("t", schema="at TIMESTAMP", event_time="at", late="1 hour", record=True)
    values = [b'{"at": 1767225600000}', b'{"at": 1767225600}', b"{}"]
    [ms, seconds, none] = looked_at(spark, topic, values)
    assert ms[0] is not None and "a number counts seconds since 1970" in ms[0]
    assert seconds[0] is None
    # Windows would leave it out and say nothing.
    assert none[0] == "the event time at is missing"
