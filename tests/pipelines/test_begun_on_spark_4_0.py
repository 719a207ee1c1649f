"""A stream that began on Spark 4.0.5 and Delta 4.0.1 goes on: its state, its table, its batches.

`begun_on_spark_4_0.tar.gz` has the folder of `revenue` below after 100 orders, as it was on
2026-11-18.
"""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.stream.folder import Folder
from tests.pipelines.conftest import Run
from tests.pipelines.orders import SCHEMA, forget_last_batch, new_topic, order, orders

FOLDER = Path(__file__).with_name("begun_on_spark_4_0.tar.gz")
NAME = "begun-on-4-0"


@pipeline(
    source=Topic(NAME, schema=SCHEMA, event_time="time", late="1 hour"),
    sink=Table("revenue", mode="upsert", key="day"),
    name=NAME,
)
def revenue(rows: DataFrame) -> DataFrame:
    totals = rows.groupBy(F.window("time", "1 day")).agg(F.sum("amount").alias("amount"))
    return totals.select(F.col("window.start").alias("day"), "amount")


def test_a_stream_of_spark_4_0_goes_on(
    run: Run, spark: SparkSession, connection: ClientSettings, tmp_path: Path
) -> None:
    topic = new_topic(connection, NAME)
    with tarfile.open(FOLDER) as packed:
        packed.extractall(tmp_path, filter="data")
    folder = Folder(tmp_path, NAME)
    folder.keep_topic_ids(Topics(connection).ids([topic]))  # of this broker
    forget_last_batch(tmp_path, NAME)  # killed before it was committed: it is done again
    orders(connection.bootstrap, topic, range(130))
    run(revenue).stream(once=True)

    expected: dict[str, int] = defaultdict(int)
    for one in map(order, range(130)):
        expected[one["time"][:10]] += one["amount"]
    table = spark.read.format("delta").load(str(tmp_path / "tables" / "revenue"))
    assert {str(row.day)[:10]: row.amount for row in table.collect()} == expected
    told = json.loads((folder.state / "progress.json").read_text("utf-8"))
    assert told["rows"] == 30  # what was read on 4.0 was not read again
