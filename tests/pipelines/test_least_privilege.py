"""The guide's list of rights for a pipeline is enough: it is run as it stands, on Spark.

What the connection knows of certificates and logins reaches Spark too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client import Producer
from headrace.client.admin.topics import Topics
from headrace.pipelines import Topic, pipeline
from headrace.pipelines.shipped import lake_tables
from headrace.pipelines.shipped.topic_to_lake import Lake
from tests.interop.secured import secured_node
from tests.pipelines import lakes
from tests.pipelines.conftest import Run
from tests.services.a_guarded_node import USERS, Guarded

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings = {"headrace.delay.service": "off", "headrace.audit": "log"}
    folder = tmp_path_factory.mktemp("guarded")
    with secured_node("headrace", folder / "node", USERS, **settings) as node:
        yield Guarded(node, folder)


def test_a_pipeline_and_a_lake(guarded: Guarded, spark: SparkSession, tmp_path: Path) -> None:
    for name in ("orders", "sums"):
        Topics(guarded.admin).create(name, partitions=1)
    guarded.allow("A pipeline")
    with Producer(guarded.admin) as shop:
        for number in range(3):
            shop.send("orders", json.dumps({"id": number}))
        shop.send("orders", "not what the schema says")

    @pipeline(source=Topic("orders", schema="id LONG NOT NULL"), sink=Topic("sums"))
    def sums(orders: DataFrame) -> DataFrame:
        return orders

    known = guarded.as_user("pipeline")
    Run(known, tmp_path)(sums).stream(once=True)
    assert len(guarded.values("sums", 3)) == 3
    assert guarded.values("orders.pipeline.sums.dead", 1) == [b"not what the schema says"]

    lakes.fill(Lake(topic="orders"), known, tmp_path)
    table = lake_tables.rows_of(spark, str(tmp_path / "tables" / "orders"))
    assert sorted(row["id"] for row in table.select("id").collect()) == [0, 1, 2]
    letters = guarded.values("orders.pipeline.orders-to-lake.dead", 1)
    assert letters == [b"not what the schema says"]
    assert guarded.denied() == []
