"""The guide's list of rights for a pipeline is enough: it is run as it stands, on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Producer
from headrace.client.topics import Topics
from tests.interop.secured import PASSWORD, secured_node
from tests.pipelines.orders import MASTER, QUICK
from tests.services.test_least_privilege import USERS, Guarded

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SOURCE = f"""
from headrace.pipelines import Topic, pipeline

LOGIN = {{
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": '{MODULE} required username="pipeline" password="{PASSWORD}";',
}}


@pipeline(
    source=Topic("orders", schema="id LONG NOT NULL", options=LOGIN),
    sink=Topic("sums", options=LOGIN),
    name="sums",
)
def sums(orders):
    return orders
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    settings = {"headrace.delay.service": "off", "headrace.audit": "log"}
    with secured_node("headrace", tmp_path / "node", USERS, **settings) as node:
        yield Guarded(node, tmp_path)


@pytest.mark.timeout(400)
def test_a_pipeline(guarded: Guarded, tmp_path: Path) -> None:
    for name in ("orders", "sums"):
        Topics(guarded.admin).create(name, partitions=1)
    guarded.allow("A pipeline")
    with Producer(guarded.admin) as shop:
        for number in range(3):
            shop.send("orders", json.dumps({"id": number}))
        shop.send("orders", "not what the schema says")
    source = tmp_path / "sums_pipeline.py"
    source.write_text(SOURCE)
    where = ["--once", "--data", str(tmp_path / "lake"), "--master", MASTER]
    where += [word for key, value in QUICK.items() for word in ("--spark", f"{key}={value}")]
    guarded.run("pipeline", "pipeline", "run", f"{source}:sums", *where, within_s=300)
    assert len(guarded.values("sums", 3)) == 3
    assert guarded.values("orders.pipeline.sums.dead", 1) == [b"not what the schema says"]
    assert guarded.denied() == []
