"""Reading a value is most of what a row costs: Spark must do it once, however many reasons look."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.rows import record_rows
from headrace.pipelines.rows.letter_size import DEFAULT_BYTES
from headrace.pipelines.shipped.web_tracking import VIEWS, page_views

pytestmark = pytest.mark.timeout(1200)  # if it is the first: Spark starts


def records(spark: SparkSession) -> DataFrame:
    """As Spark's Kafka source gives them."""
    return spark.range(3).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        "CAST(concat('{\"id\": ', id, '}') AS BINARY) AS value",
        "'page-views' AS topic",
        "0 AS partition",
        "id AS offset",
        "timestamp_millis(id) AS timestamp",
        "CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    )


@pytest.mark.parametrize("way", ["rows", "dead letters"])
def test_a_value_is_read_once(spark: SparkSession, way: str) -> None:
    found = record_rows.parsed(records(spark), VIEWS)
    if way == "rows":
        frame: Any = record_rows.good(found, VIEWS)
    else:
        ids = {"page-views": "NN4FUNB8RIaAxdvrp36PAw"}
        frame = record_rows.bad(found, page_views, ids, DEFAULT_BYTES)
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    # Which field does not fit is looked for in dead letters, by other readings. As VARIANT a value
    # is read again only where text looks like a long number.
    assert plan.count("from_json(StructField(id,StringType") == 1, plan
    as_variant = plan.count("from_json(StructField(id,VariantType")
    assert way == "dead letters" or plan.count("from_json") == 1 + as_variant, plan
