"""Values that Spark's JSON functions would take and lose a part of: each has a reason instead."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines import Table, Topic, pipeline, testing
from headrace.pipelines.rows import record_rows

pytestmark = pytest.mark.timeout(1200)

RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
WRITTEN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = (
    "id LONG NOT NULL, small INT, price DOUBLE, ratio FLOAT, money DECIMAL(10,2), name STRING, "
    "at TIMESTAMP, day DATE, tags ARRAY<LONG>, "
    "place STRUCT<city: STRING NOT NULL, zip: LONG>, "
    "lines ARRAY<STRUCT<sku: STRING NOT NULL, price: DOUBLE>>, "
    "labels MAP<STRING, DOUBLE>, stops ARRAY<STRUCT<at: TIMESTAMP>>, tiny TINYINT, "
    "tinies ARRAY<TINYINT>, local TIMESTAMP_NTZ, any VARIANT"
)
MORE = "the value has something after"
NONE, OBJECT = "the value is not JSON", "the value is not a JSON object"

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
    b"null": OBJECT,
    b"7": OBJECT,
    b'"text"': OBJECT,
    b" ": OBJECT,
    b'{"id": 1': NONE,
    b"{'id': 1}": NONE,
    b"{id: 1}": NONE,
    b'\xef\xbb\xbf{"id": 1}': OBJECT,
    '{"id": 1}'.encode("utf-16"): "not UTF-8",
    b'{"id": 1, "name": "caf\xe9"}': "not UTF-8",
    b'{"id": 1, "name": "\\ud800x"}': "the field name holds half of a surrogate pair",
    b'{"id": 1, "name": "x\\uDC00"}': "the field name holds half of a surrogate pair",
    b'{"id": 1, "name": "\\\\\\ud800"}': "the field name holds half of a surrogate pair",
    # numbers
    b'{"id": 99999999999999999999}': "the field id is 99999999999999999999, which is no bigint",
    b'{"id": 1, "small": 3000000000}': "the field small is 3000000000, which is no int",
    b'{"id": 1.5}': "the field id is 1.5, which is no bigint",
    b'{"id": "1"}': 'the field id is "1", which is no bigint',
    b'{"id": ""}': 'the field id is "", which is no bigint',
    b'{"id": true}': "the field id is true, which is no bigint",
    b'{"id": 1, "price": NaN}': NONE,
    b'{"id": 1, "price": "NaN"}': 'the field price is "NaN", which is no double',
    b'{"id": 1, "price": -Infinity}': NONE,
    b'{"id": 1, "price": 1e999}': "the number price is too large",
    b'{"id": 1, "price": -1e999}': "the number price is too large",
    b'{"id": 1, "ratio": 1e39}': "the number ratio is too large",
    b'{"id": 1, "money": 123456789012}': "money is 123456789012, which DECIMAL(10,2) cannot hold",
    b'{"id": 1, "money": 1.239}': "money is 1.239, which DECIMAL(10,2) cannot hold exactly",
    b'{"id": 1, "money": 1239e-3}': "DECIMAL(10,2) cannot hold exactly",
    b'{"id": 1, "money": "much"}': "money is much, which is not a number for DECIMAL(10,2)",
    b'{"id": 1, "money": true}': "money is true, which is not a number for DECIMAL(10,2)",
    b'{"id": 1, "labels": {"a": 1, "b": 1e999}}': "the number labels is too large",
    b'{"id": 1, "labels": {"a": 1, "a": 2}}': "labels has a key twice",
    b'{"id": 1, "tiny": 200}': "tiny is 200, which TINYINT cannot hold",
    b'{"id": 1, "tiny": -129}': "tiny is -129, which TINYINT cannot hold",
    b'{"id": 1, "tinies": [1, 255]}': "tinies is 255, which TINYINT cannot hold",
    b'{"id": 1, "any": 1e400}': "which no column can hold exactly",
    # times
    b'{"id": 1, "local": "2026-03-29T02:30:00Z"}': "which is no time without a zone such as",
    b'{"id": 1, "local": "2026-03-29 02:30:00+05:00"}': "which is no time without a zone",
    b'{"id": 1, "local": "2026-03-29T02:30:00 Europe/Berlin"}': "which is no time without a zone",
    b'{"id": 1, "at": "yesterday"}': "at is yesterday, which is not a time such as",
    b'{"id": 1, "at": "10:15:00"}': "at is 10:15:00, which is not a time such as",
    b'{"id": 1, "at": "T10:15"}': "which is not a time such as",
    b'{"id": 1, "at": "2026-01"}': "which is not a time such as",
    b'{"id": 1, "at": "2026-02-30T00:00:00Z"}': "which is not a time such as",
    b'{"id": 1, "at": {"year": 2026}}': "which is not a time such as",
    b'{"id": 1, "at": true}': "which is not a time such as",
    b'{"id": 1, "at": 1767225600}': 'looks like seconds: say it with Topic(..., unit="seconds")',
    b'{"id": 1, "at": 1770888431076116}': "looks like microseconds",
    b'{"id": 1, "at": 1763305820261822329}': "at is 1763305820261822329, which looks like nanosec",
    b'{"id": 1, "at": 20260101}': "which is not between 1990 and 2100 in milliseconds",
    b'{"id": 1, "at": 99999999999999999999999999999999999999999}': "not between 1990 and 2100",
    b'{"id": 1, "at": "+10000-01-01T00:00:00Z"}': "at is not in the years 1 to 9999",
    b'{"id": 1, "at": "-0001-01-01T00:00:00Z"}': "at is not in the years 1 to 9999",
    b'{"id": 1, "day": "2026"}': "day is 2026, which is no date such as 2026-01-31",
    b'{"id": 1, "day": 20454}': "day is 20454, which is no date",
    b'{"id": 1, "day": "2026-01-31T23:00:00-05:00"}': "which is no date",
    b'{"id": 1, "stops": [{"at": 1767225600000}, {"at": 1767225600}]}': (
        "stops.at is 1767225600, which looks like seconds"
    ),
    # names
    b"{}": "the field id is missing",
    b'{"id": null}': "the field id is missing",
    b'{"ID": 1}': "the field id is missing",
    b'{"id": 1, "id": null}': "the field id is missing",
    # within
    b'{"id": 1, "tags": [1, "two"]}': 'the field tags is [1,"two"], which is no array<bigint>',
    b'{"id": 1, "tags": 1}': "the field tags is 1, which is no array<bigint>",
    b'{"id": 1, "place": "Bern"}': 'the field place is "Bern", which is no struct<',
    b'{"id": 1, "place": []}': "the field place is [], which is no struct<",
    b'{"id": 1, "place": {"city": "Bern", "zip": "3000x"}}': "the field place is ",
    b'{"id": 1, "place": {"zip": 3000}}': "the field place.city is missing",
    b'{"id": 1, "lines": [{"sku": "a"}, {"price": 1}]}': "the field lines.sku is missing",
    b'{"id": 1, "lines": [{"sku": "a", "price": 1e999}]}': "the number lines.price is too large",
}

GOOD: dict[bytes, dict[str, Any]] = {
    b' {"id": 1} \r\n': {"id": 1},
    b'{"id": 9223372036854775807, "small": -2147483648}': {"id": 2**63 - 1, "small": -(2**31)},
    b'{"id": 1, "tiny": -128, "tinies": [127, null]}': {"tiny": -128, "tinies": [127, None]},
    b'{"id": 1, "price": 1e308, "money": 1.5}': {"price": 1e308},
    # The last of a name that comes twice; what the schema does not name is left out.
    b'{"id": 1, "id": 2}': {"id": 2},
    b'{"id": 1, "Name": "x", "other": {"id": 5}}': {"id": 1, "name": None},
    b'{"id": 1, "name": "}{ ][ ,"}': {"name": "}{ ][ ,"},
    b'{"id": 1, "name": {"a": [1]}}': {"name": '{"a":[1]}'},  # whole, as text
    b'{"id": 1, "name": "0.1234567890123456789"}': {"name": "0.1234567890123456789"},
    b'{"id": 1, "name": "{\\"a\\": 0.1234567890123456789}"}': {
        "name": '{"a": 0.1234567890123456789}'
    },
    b'{"id": 1, "name": {"a": [1.5, 12345678901234567]}}': {
        "name": '{"a":[1.5,12345678901234567]}'
    },
    b'{"id": 1, "local": "2026-03-29T02:30:00.5"}': {
        "local": datetime.datetime(2026, 3, 29, 2, 30, 0, 500_000)
    },
    '{"id": 1, "name": "Zürich ☃"}'.encode(): {"name": "Zürich ☃"},
    b'{"id": 1, "at": "0001-01-01T00:00:00Z"}': {"at": "0001-01-01 00:00:00"},
    b'{"id": 1, "at": "9999-12-31T23:59:59.999999Z"}': {"at": "9999-12-31 23:59:59.999999"},
    b'{"id": 1, "at": 1767225600123}': {"at": "2026-01-01 00:00:00.123"},
    b'{"id": 1, "at": "1767225600123"}': {"at": "2026-01-01 00:00:00.123"},
    b'{"id": 1, "at": "2026-01-01 01:00:00+01:00"}': {"at": "2026-01-01 00:00:00"},
    b'{"id": 1, "at": null, "day": null, "money": null}': {"at": None, "money": None},
    b'{"id": 1, "day": "2026-01-31"}': {"day": datetime.date(2026, 1, 31)},
    b'{"id": 1, "money": 12e1}': {"money": decimal.Decimal("120")},
    b'{"id": 1, "money": 1.230}': {"money": decimal.Decimal("1.23")},
    b'{"id": 1, "money": "-7.5"}': {"money": decimal.Decimal("-7.50")},
    b'{"id": 1, "name": "\\ud83d\\ude00 \\\\ud800"}': {"name": "\U0001f600 \\ud800"},
    b'{"id": 1, "place": null, "lines": [], "labels": {}, "tags": [null]}': {"place": None},
    b'{"id": 1, "lines": [{"sku": "a", "price": null}]}': {"id": 1},
}


def looked_at(
    spark: SparkSession, topic: Topic, values: list[bytes]
) -> list[tuple[str | None, dict[str, Any] | None]]:
    """Of each value the reason why it is bad, or the row, its times as text."""
    rows = [(None, value, "t", 0, n, WRITTEN, None) for n, value in enumerate(values)]
    found = record_rows.parsed(spark.createDataFrame(rows, RECORDS), topic).orderBy("offset")
    bad = [row[0] for row in found.select(record_rows.reason(found)).collect()]
    kept = record_rows.good(found, topic)
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
        b'{"a": 1e400}': "which no column can hold exactly",
        b'{"a": "caf\xe9"}': "not UTF-8",
        b"": "not JSON",
    }
    for (value, reason), (why, _) in zip(
        bad.items(), looked_at(spark, topic, list(bad)), strict=True
    ):
        assert why is not None and reason in why, (value, why)


def test_an_event_time_counts_what_its_unit_says(spark: SparkSession) -> None:
    moment = "2026-01-01 00:00:00.123"
    for unit, number in {
        "milliseconds": 1_767_225_600_123,
        "seconds": 1_767_225_600.123,
        "microseconds": 1_767_225_600_123_000,
        "nanoseconds": 1_767_225_600_123_000_999,
    }.items():
        times: Any = {"schema": "at TIMESTAMP", "event_time": "at", "late": "1 hour"}
        topic = Topic("t", unit=unit, record=True, **times)
        other = 1_767_225_600 if unit != "seconds" else 1_767_225_600_000
        values = [b'{"at": %s}' % str(number).encode(), b'{"at": %d}' % other, b"{}"]
        [good, bad, none] = looked_at(spark, topic, values)
        assert good == (None, {"at": moment}), unit
        assert bad[0] is not None and "which looks like " in bad[0]
        # Windows would leave it out and say nothing.
        assert none[0] == "the event time at is missing"


def test_each_digit_of_a_decimal_is_kept_or_told_of(spark: SparkSession) -> None:
    topic = Topic("t", schema="n DECIMAL(38,18)", record=True)
    values = {
        b'{"n": 1234567890123456789.123456789012345678}': "1234567890123456789.123456789012345678",
        b'{"n": 0.1234567890123456789}': None,
        b'{"n": 0.1234567890123456780}': "0.123456789012345678",
        b'{"n": 1.00000000000000000000000000000000000000001}': None,
        b'{"n": 100000000000000000000.5}': None,
    }
    for (value, kept), (why, row) in zip(
        values.items(), looked_at(spark, topic, list(values)), strict=True
    ):
        assert (why is None) == (kept is not None), (value, why)
        if kept is not None:
            assert row == {"n": decimal.Decimal(kept)}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
def test_an_event_time_is_before_1970_by_the_moment_not_by_the_clock_of_the_zone(
    spark: SparkSession, zone: str
) -> None:
    """Spark's watermark begins at that moment: rows before it would be late without a word."""
    source = Topic("t", schema="id LONG, at TIMESTAMP", event_time="at", late="1 hour")

    @pipeline(source=source, sink=Table("t"), zone=zone)
    def dated(rows: DataFrame) -> DataFrame:
        return rows.select("id")

    times = ["1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"]
    found = testing.run(dated, [{"id": n, "at": at} for n, at in enumerate(times)], spark)
    assert found.rows == [{"id": 1}]
    assert [why for _, why in found.bad] == ["at is before 1970"]
