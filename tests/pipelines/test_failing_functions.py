"""A function that raises: one sentence with its line and its record, the stacks in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from tests.pipelines.conftest import Run
from tests.pipelines.driver import Driver
from tests.pipelines.orders import SCHEMA, new_topic, order, orders, put

pytestmark = pytest.mark.timeout(1200)

PROGRAM = """
from pyspark.sql import functions as F

from headrace.pipelines import Table, Topic, pipeline

@F.udf("long")
def share(number):
    return 100 // (number - 17)

@pipeline(source=Topic({topic!r}, schema={schema!r}), sink=Table("shares"), name={topic!r})
def shares(rows):
    return rows.withWatermark("time", "1 hour").groupBy(F.window("time", "1 day")).agg(
        F.sum(share("id")).alias("share"))
"""


def test_a_function_with_state_names_the_record_that_it_fails_for(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "fails-with-state")
    orders(connection.bootstrap, topic, range(40))
    sink = Table("shares", mode="upsert", key="kind")

    @pipeline(source=Topic(topic, schema=SCHEMA), sink=sink, name=topic)
    def shares(rows: DataFrame) -> DataFrame:
        share = F.expr("100 DIV (id - 17)").alias("share")
        kind = F.expr("id % 2").alias("kind")
        return rows.select(kind, share).groupBy("kind").agg(F.sum("share").alias("shares"))

    place = rf"{topic} 1/8: Division by zero"  # 17 is the ninth odd number
    with pytest.raises(PipelineError, match=rf"failed at the record {place}.*expect="):
        run(shares).stream(once=True)
    assert not (
        tmp_path / "tables" / "shares" / "_delta_log" / "00000000000000000001.json"
    ).exists()


def test_a_function_that_fails_for_records_together_only_is_not_said_to_fail_for_one(
    spark: SparkSession, connection: ClientSettings, run: Run
) -> None:
    """Each amount fits a DECIMAL(38, 0), their sum does not."""
    topic = new_topic(connection, "fails-together")
    values = [json.dumps(order(n) | {"amount": 6 * 10**18}).encode() for n in (1, 3)]
    put(connection.bootstrap, topic, list(values))
    sink = Table("sums", mode="upsert", key="kind")

    @pipeline(source=Topic(topic, schema=SCHEMA), sink=sink, name=topic)
    def sums(rows: DataFrame) -> DataFrame:
        kind = F.expr("id % 2").alias("kind")
        return rows.groupBy(kind).agg(F.sum("amount").alias("amount"))

    with pytest.raises(PipelineError, match="overflow") as refused:
        run(sums).stream(once=True)
    assert "failed at the record" not in str(refused.value)


def test_a_person_reads_a_sentence_and_finds_the_stack_in_the_log(
    connection: ClientSettings, tmp_path: Path
) -> None:
    topic = new_topic(connection, "fails-in-python")
    orders(connection.bootstrap, topic, range(40))
    program = PROGRAM.format(topic=topic, schema=SCHEMA)
    with Driver(tmp_path, connection.bootstrap, program, topic) as driver:
        driver.start("--once")
        assert driver.process is not None
        assert driver.process.wait(300) != 0
        driver.process = None
        said = driver.said()
    [sentence] = [line for line in said.splitlines() if "failed at the record" in line]
    assert f"{topic} 1/8: ZeroDivisionError" in sentence
    assert "in share (" in sentence and "return 100 // (number - 17)" in sentence
    for sign in ("Traceback", "\tat ", "Caused by", "org.apache.spark"):
        assert sign not in said, said
    log = (driver.folder.data / "logs" / f"{topic}.log").read_text()
    assert "ZeroDivisionError" in log and "\tat org.apache.spark" in log
