"""One Spark and one broker for all tests of a run; each test has its own topics and folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.client.connection import Connection
from headrace.pipelines import session
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.running import Runner
from headrace.testing import Broker

# It runs for seconds on tables of a few rows: compiling well costs more than it gives.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}
MASTER = "local[2]"


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    one = session.start("tests", master=MASTER, given=QUICK)
    yield one
    one.stop()


@pytest.fixture
def connection(broker: Broker) -> Connection:
    return Connection({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def run(spark: SparkSession, connection: Connection, tmp_path: Path) -> Any:
    """A runner of a pipeline in this test's folder; what it says is in `.said`."""

    def runner(pipeline: Pipeline) -> Runner:
        return Runner(
            pipeline=pipeline,
            connection=connection,
            data=tmp_path,
            say=lambda line: None,
            note=lambda line: None,
            master=MASTER,
            spark_settings=QUICK,
        )

    return runner
