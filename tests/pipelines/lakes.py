"""A topic into a lake table by the tests' own Spark: everything that is there now."""

from __future__ import annotations

from pathlib import Path

from headrace.client.connection import ClientSettings
from headrace.pipelines.shipped.topic_to_lake import Lake
from headrace.pipelines.stream.runner import Runner
from tests.pipelines.orders import MASTER, QUICK


def fill(lake: Lake, connection: ClientSettings, data: Path) -> Runner:
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
    return runner
