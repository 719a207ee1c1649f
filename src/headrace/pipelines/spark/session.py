"""Spark's session for pipelines: Java, jars, quiet logs, Delta, Iceberg.

On one machine Spark's own settings, made for clusters, cost more than small runs themselves; LOCAL
says what is set instead and what it saves. The user's settings always win.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.installation import command_to_add, how_to_add
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark.jars import LINES, Say, jars, line_of, user_cache
from headrace.pipelines.spark.java import quiet_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark logs an error with its Python and Java stacks, tens to hundreds of lines, into a file. Users
# get one sentence, and the stacks on standard error only if they ask for them.
LOG_FILE, SHOWN = "headrace.spark.log", "headrace.spark.shown"
LOG_SETTINGS = f"""rootLogger.level = error
rootLogger.appenderRef.file.ref = file
rootLogger.appenderRef.stderr.ref = stderr
rootLogger.appenderRef.stderr.level = ${{sys:{SHOWN}:-off}}
# As the root: else Spark tells of the difference at each start.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${{sys:{LOG_FILE}}}
appender.file.filePattern = ${{sys:{LOG_FILE}}}.%i
appender.file.createOnDemand = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}} %p %c{{1}}: %m%n%ex%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{{1}}: %m%n%ex%n
"""

ZONE = "spark.sql.session.timeZone"
# On one machine nothing listens beyond loopback.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.databricks.delta.snapshotPartitions": "2",  # of a table's own log; 50 by default
}
ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    ZONE: "UTC",
    "spark.sql.extensions": (
        "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    ),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.streaming.stopTimeout": "30s",
    # Java never compiles a method of more bytes than this, and Spark makes one of a whole stage: of
    # a page view's checks it had 10,179 and ran five times as long as its parts.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Spark's default is INT96, in which readers without Spark take the year 9999 for another one.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
JAVA_OPTIONS, JARS = "spark.driver.extraJavaOptions", "spark.jars"
WAREHOUSE = "spark.sql.warehouse.dir"
PYTHON = "spark.pyspark.python"  # of executors, if it is elsewhere there
ANSWERS_WITHIN_S = 10.0
# local, local[4], local[*], local[*,3]; local-cluster[...] has executors of its own.
LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")


def settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark besides its jars; the user's settings win."""
    here: dict[str, str] = {}
    if (count := cores(master)) is not None:
        # 200 by default: each one is a task, and a file for what a stream keeps.
        here = LOCAL | {"spark.sql.shuffle.partitions": str(count)}
    return {"spark.master": master, **ALWAYS, **here, **given}


def cores(master: str) -> int | None:
    """Returns how many cores a local master uses; None for a cluster."""
    found = LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    count = found[1] or "1"
    return cores_here() if count == "*" else int(count)


def cores_here() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start(
    name: str,
    *,
    master: str,
    given: Mapping[str, str],
    note: Say | None = None,
    log: Path | None = None,
    debug: bool = False,
) -> SparkSession:
    """Takes seconds, and a download the first time; one that runs in this process is taken, with
    the log that it has. Spark's errors go to `log`, with `debug` to standard error too."""
    must_be_installed()
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    # It writes each refusal of Spark as a line of JSON with the whole stack, 13 kB and more.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).disabled = True
    whole = settings(master, given)
    if SparkContext._active_spark_context is None:
        must_answer(master)
        log = log or user_cache() / "spark.log"
        whole |= _prepared(whole, note, log, debug=debug)
        _keep_python_errors(log, debug=debug)
    try:
        return SparkSession.builder.appName(f"headrace {name}").config(map=whole).getOrCreate()
    except (PySparkException, Py4JError) as failure:
        reason = " ".join(str(failure).split("\n\tat ")[0].split())[:600]
        raise PipelineError(f"Spark does not start on {master}: {reason}") from failure


def ship(spark: SparkSession, function: Callable[..., Any], files: Sequence[Path]) -> None:
    """The user's code for the workers: functions of the pipeline's own file go with each task,
    whole, as no worker could import them; modules that the file imports are sent as files."""
    from pyspark import cloudpickle

    module = sys.modules.get(function.__module__)
    own = module is not None and not function.__module__.startswith(("headrace.", "__main__"))
    if module is not None and own:
        cloudpickle.register_pickle_by_value(module)
    for file in files:
        spark.sparkContext.addPyFile(str(file.absolute()))


def must_be_installed() -> None:
    """Refuses before anything of Spark is imported: it must be here, in a version that we know."""
    missing = [one for one in ("pyspark", "delta") if importlib.util.find_spec(one) is None]
    if missing:
        raise PipelineError(
            how_to_add("Pipelines need Spark, that is", " and ".join(missing), "spark")
        )
    if line_of(version := metadata.version("pyspark")) is None:
        raise PipelineError(
            f"Pipelines run on PySpark {LINES}, and {version} is installed here: "
            f"{command_to_add('spark')}"
        )


def must_answer(master: str) -> None:
    """Raises unless one of the cluster's masters answers: Spark would try for a minute, and then
    fail with another error."""
    if not master.startswith("spark://"):
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise PipelineError(f"{master!r} is not a master; write spark://HOST:PORT.")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
        except OSError as failure:
            failures.append(f"{address}: {failure}")
        else:
            return
    raise PipelineError(f"No Spark master answers ({'; '.join(failures)}).")


def _prepared(
    told: Mapping[str, str], note: Say | None, log: Path, *, debug: bool
) -> dict[str, str]:
    """Prepares Java, Python and jars for a new Spark, beside those that the user names."""
    cache = user_cache()
    os.environ["JAVA_HOME"] = str(quiet_home(cache))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = told.get(PYTHON, sys.executable)
    brought = [str(jar) for jar in jars(cache, note)]
    log.parent.mkdir(parents=True, exist_ok=True)
    quiet = f"-Dlog4j2.configurationFile={_log_settings(cache).as_uri()}"
    quiet += f' "-D{LOG_FILE}={log.absolute()}" -D{SHOWN}={"error" if debug else "off"}'
    return {
        JARS: ",".join([*brought, *filter(None, [told.get(JARS)])]),
        JAVA_OPTIONS: f"{quiet} {told.get(JAVA_OPTIONS, '')}".strip(),
        # Otherwise Spark makes a folder of that name in the current folder, for tables that we do
        # not have.
        WAREHOUSE: told.get(WAREHOUSE, (cache / "spark-warehouse").as_uri()),
    }


def _keep_python_errors(log: Path, *, debug: bool) -> None:
    """What a batch's function raises is logged by py4j with its stack, before we explain it."""
    logger = logging.getLogger("py4j")
    for one in [one for one in logger.handlers if isinstance(one, logging.FileHandler)]:
        logger.removeHandler(one)
        one.close()
    logger.addHandler(logging.FileHandler(log, encoding="utf-8", delay=True))
    logger.propagate = debug


def process_of(spark: SparkSession) -> int:
    """The number of Spark's own process."""
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _log_settings(cache: Path) -> Path:
    path = cache / "spark-log4j2.properties"
    if not path.exists() or path.read_text("utf-8") != LOG_SETTINGS:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(LOG_SETTINGS, "utf-8")
        new.replace(path)
    return path


@contextmanager
def settings_for_now(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Spark's settings, for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)
