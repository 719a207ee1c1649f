"""The guides of pipelines, typed from top to bottom on one node, one after the other.

The commands that compute run in this process: each would start a Spark of its own, which takes
longer than all they do.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.guides.blocks import blocks_of
from tests.guides.test_walk import ON_SPARK, ROOT
from tests.guides.walk import Walk
from tests.interop.brokers import HeadraceNode, free_port

COMPUTING = ("headrace pipeline run", "headrace lake")


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("reader")
    collector = f"127.0.0.1:{free_port()}"
    replacing = {
        "127.0.0.1:8090": collector,
        "headrace track serve": f"headrace track serve --listen {collector}",
    }
    with HeadraceNode(folder / "node") as node:
        yield Walk(folder, node=node, replacing=replacing, here=COMPUTING)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("guide", ON_SPARK)
def test_a_reader_can_type_every_command(spark: SparkSession, walk: Walk, guide: str) -> None:
    walk.read(blocks_of(ROOT / guide, guide))
