"""The shipped pipelines on Apache Kafka: the same records make the same tables as on Headrace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.producer.producer import Producer
from headrace.pipelines.shipped import customers, lake_tables
from headrace.pipelines.shipped.generator import generate
from headrace.pipelines.shipped.topic_to_lake import Lake
from headrace.pipelines.stream.runner import Runner
from tests.interop.brokers import make_node
from tests.pipelines import plain_tracking as plain
from tests.pipelines.orders import MASTER, QUICK
from tests.pipelines.site import BEGIN_MS, Site

pytestmark = pytest.mark.timeout(1200)

TOPIC = "customers"
Rows = list[tuple[Any, ...]]


def last_values(made: list[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """What a compacted topic means, in plain Python."""
    found: dict[bytes, bytes] = {}
    for key, value in made:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def lake(connection: ClientSettings, data: Path, spark: SparkSession) -> Rows:
    """Made-up customers in a compacted topic, by key; a few are no JSON."""
    Topics(connection).create(TOPIC, partitions=2, settings={"cleanup.policy": "compact"})
    made = list(customers.generate(records=200, customers=40, seed=7))
    with Producer[bytes, bytes](connection) as producer:
        for key, value in made:
            producer.send(TOPIC, value, key=key)
        producer.send(TOPIC, b"{broken", key=b"bad")
    lake = Lake(topic=TOPIC, upsert=True)
    runner = Runner(
        growth=lake.growth(),
        pipeline=lake.pipeline(),
        connection=connection,
        data=data,
        say=lambda line: None,
        note=lambda line: None,
        master=MASTER,
        spark_settings=QUICK,
    )
    runner.stream(once=True)
    assert runner.dead == 1
    table = lake_tables.rows_of(spark, str(data / "tables" / TOPIC))
    # What is null is left out of JSON, as it was in the record.
    json = table.selectExpr(
        "CAST(_record_key AS STRING)", "to_json(struct(name, orders, spent, email, address))"
    )
    found = sorted(tuple(row) for row in json.collect())
    expected = [
        (key.decode(), value.decode().replace(": ", ":").replace(", ", ","))
        for key, value in sorted(last_values(made).items())
    ]
    assert found == expected
    return found


def tracking(bootstrap: str, data: Path, spark: SparkSession) -> Rows:
    """Views by the minute."""
    site = Site(bootstrap, data, spark)
    events = [
        one
        for one in generate(visitors=10, seed=7, begin_ms=BEGIN_MS, days=1, late_percent=0)
        if one.topic == "page-views"
    ]
    site.write(events)
    site.stream("page-views")
    found = site.table("page-views")
    expected = plain.statistics(site.written["page-views"], plain.MINUTE_MS)
    assert found == sorted((start, *rest) for start, rest in expected.items())
    return found


def test_both_brokers_give_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    tables = {}
    for kind in ("headrace", "apache"):
        with make_node(kind, tmp_path / kind) as node:
            connection = ClientSettings({"bootstrap.servers": node.bootstrap})
            views = tracking(node.bootstrap, tmp_path / f"{kind}-tables", spark)
            tables[kind] = views, lake(connection, tmp_path / f"{kind}-tables", spark)
    assert tables["headrace"] == tables["apache"]
