"""Spark's session for pipelines: Java, jars, quiet logs, Delta, Iceberg; the rest stays Spark's."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.jars import jars, user_cache
from headrace.pipelines.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{short.message}%n
"""

# On one machine: a shuffle of a few partitions instead of 200, nothing listens beyond loopback.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",  # of a table's own log; 50 by default
}
ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": (
        "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    ),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.streaming.stopTimeout": "30s",
}


def settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """What Spark is told beside its jars; what the person gives wins."""
    local = LOCAL if master.startswith("local") else {}
    return {"spark.master": master, **ALWAYS, **local, **given}


def start(name: str, *, master: str, given: Mapping[str, str]) -> SparkSession:
    """Takes 7 to 10 seconds, and a download the first time."""
    if importlib.util.find_spec("pyspark") is None:
        raise PipelineError("Pipelines need PySpark: pip install 'headrace[spark]'.")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    cache = user_cache()
    os.environ["JAVA_HOME"] = str(java_home(cache))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    whole = settings(master, given)
    whole["spark.jars"] = ",".join(str(jar) for jar in jars(cache))
    quiet = f"-Dlog4j2.configurationFile={_log_settings(cache).as_uri()}"
    option = "spark.driver.extraJavaOptions"
    whole[option] = f"{quiet} {whole.get(option, '')}".strip()
    try:
        return SparkSession.builder.appName(f"headrace {name}").config(map=whole).getOrCreate()
    except PySparkException as failure:
        raise PipelineError(f"Spark does not start on {master}: {failure}") from failure


def process_of(spark: SparkSession) -> int:
    """The number of Spark's own process."""
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _log_settings(cache: Path) -> Path:
    path = cache / "spark-log4j2.properties"
    if not path.exists() or path.read_text("utf-8") != LOG_SETTINGS:
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(LOG_SETTINGS, "utf-8")
        new.replace(path)
    return path
