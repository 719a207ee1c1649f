"""One Spark and one broker for all tests of a run; each test has its own topics and folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.connection import ClientSettings
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.spark import session
from headrace.pipelines.stream.runner import Runner
from headrace.testing import Broker
from tests.interop.brokers import free_port
from tests.pipelines.orders import MASTER, QUICK
from tests.services.servers import postgres

__all__ = ["postgres"]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    # Not a port of the system's choice: Spark takes those for its answers to Python, and a client
    # that still looks for a broker that has ended must not come there instead.
    with Broker(port=free_port()) as one:
        yield one


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    one = session.start("tests", master=MASTER, given=QUICK)
    yield one
    one.stop()


@pytest.fixture
def connection(broker: Broker) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": broker.bootstrap})


class Run:
    """Makes runners of pipelines in this test's folder; what they note is in `notes`."""

    def __init__(self, connection: ClientSettings, data: Path) -> None:
        self.connection, self.data = connection, data
        self.notes: list[str] = []
        self.said: list[str] = []

    def __call__(self, pipeline: Pipeline, *, accept_change: bool = False) -> Runner:
        return Runner(
            pipeline=pipeline,
            connection=self.connection,
            data=self.data,
            say=self.said.append,
            note=self.notes.append,
            master=MASTER,
            spark_settings=QUICK,
            accept_change=accept_change,
        )


@pytest.fixture
def run(spark: SparkSession, connection: ClientSettings, tmp_path: Path) -> Run:
    return Run(connection, tmp_path)
