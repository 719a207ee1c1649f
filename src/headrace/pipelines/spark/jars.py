"""The jars that PySpark does not bring, with pinned sums: Spark's Kafka connector and Avro, Delta,
Iceberg, PostgreSQL's driver.

Brought once by Spark's own resolver (so its settings for mirrors and proxies hold), checked, and
kept in the user's cache; from then on a start needs neither resolver nor network. If several first
starts happen at the same moment, one downloads the jars and the others wait for it: it holds a lock
beside the folder, which ends with its process. The folder appears whole or not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from headrace.pipelines.failure import PipelineError

# Jars for each line of Spark, by their Maven coordinates. They are listed one by one, and none of
# them brings others: on Maven Central (2026-11-18) the newest `spark-token-provider-kafka`, which
# the connector names in its own version, is 4.0.0. It works with newer connectors; only Kerberos
# delegation tokens need more. Spark's Avro has no 4.1.3 either.
PINNED = {
    "4.0": {
        "io.delta:delta-spark_2.13:4.0.1": (
            "a1e76860b19fe1e6b205a4ea7a9099a2f9575d39bb71d49b3e679b299d0efb91"
        ),
        "io.delta:delta-storage:4.0.1": (
            "ecc42c5aaa51c423312d9e4e48aa4a12b34740bf2c37de0e8f279277ec3d12e4"
        ),
        "org.antlr:antlr4-runtime:4.13.1": (
            "54665d2838cc66458343468efc539e454fc95b46a8a04b13c6ac43fc9be63505"
        ),
        "org.apache.commons:commons-pool2:2.12.0": (
            "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b"
        ),
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1": (
            "2192a0881ed0f5773b5a83a8820d2b0b2069beec203028643a1c338551007f09"
        ),
        "org.apache.kafka:kafka-clients:3.9.0": (
            "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18"
        ),
        "org.apache.spark:spark-avro_2.13:4.0.0": (
            "083fb13d7a1091025b135eff216e2009b42c9724bb8bc597d2f28b1207ef4709"
        ),
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0": (
            "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3"
        ),
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0": (
            "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
        ),
        "org.postgresql:postgresql:42.7.8": (
            "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7"
        ),
    },
    "4.1": {
        "io.delta:delta-spark_4.1_2.13:4.4.0": (
            "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"
        ),
        "io.delta:delta-storage:4.4.0": (
            "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
        ),
        "org.apache.commons:commons-pool2:2.12.0": (
            "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b"
        ),
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0": (
            "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
        ),
        "org.apache.kafka:kafka-clients:3.9.1": (
            "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9"
        ),
        "org.apache.spark:spark-avro_2.13:4.1.1": (
            "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d"
        ),
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3": (
            "cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6"
        ),
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0": (
            "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
        ),
        "org.postgresql:postgresql:42.7.8": (
            "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7"
        ),
    },
}
NEWEST = "4.1"
LINES = " or ".join(PINNED)  # for people
BROUGHT_WITHIN_S = 900.0
LOOK_EVERY_S = 0.2
# Java's messages when a host cannot be reached.
NO_NETWORK = (
    "UnknownHostException",
    "ConnectException",
    "NoRouteToHostException",
    "SocketTimeoutException",
    "HttpTimeoutException",
)

Say = Callable[[str], None]

# Spark's resolver brings one jar at a time, without what its own description asks for.
RESOLVE = """
import sys
from pyspark.sql import SparkSession
folder, *packages = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config(map={
    "spark.jars.ivy": folder, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1"}).getOrCreate()
for package in packages:
    spark.sparkContext._jsc.addJar(f"ivy://{package}?transitive=false")
spark.stop()
"""


def user_cache() -> Path:
    """Returns the folder where Headrace keeps files that can be downloaded again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def line_of(version: str) -> str | None:
    """The line of a version of PySpark ("4.1" for "4.1.3"); None if no jars are pinned for it."""
    line = ".".join(version.split(".")[:2])
    return line if line in PINNED else None


def packages() -> dict[str, str]:
    """The checksums of the jars by their Maven coordinates, for the PySpark that is installed;
    those of the newest line if there is none, or one that pipelines do not run on."""
    try:
        line = line_of(metadata.version("pyspark"))
    except metadata.PackageNotFoundError:
        line = None
    return PINNED[line or NEWEST]


def sums() -> dict[str, str]:
    """The checksums by the names that Spark's resolver gives to the files."""
    named = ((package.split(":"), wanted) for package, wanted in packages().items())
    return {f"{group}_{name}-{version}.jar": wanted for (group, name, version), wanted in named}


def folder_below(cache: Path) -> Path:
    """Other pins, another folder."""
    digest = hashlib.sha256(repr(sorted(sums().items())).encode()).hexdigest()[:12]
    return cache / f"spark-jars-{digest}"


def jars(cache: Path, note: Say | None = None) -> list[Path]:
    """All of them, checked; brought if they are not there. JAVA_HOME is set."""
    folder = folder_below(cache)
    if not folder.exists():
        with _alone(folder.with_suffix(".lock")):
            if not folder.exists():  # else another process has brought them meanwhile
                _bring(folder, note)
    return checked(cache)


def checked(cache: Path) -> list[Path]:
    """The jars that are there, each with the pinned checksum."""
    folder = folder_below(cache)
    for name, wanted in sums().items():
        check(folder / name, wanted)
    return [folder / name for name in sums()]


def check(jar: Path, wanted: str) -> None:
    try:
        with jar.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise PipelineError(
            f"{jar.name} is missing: remove {jar.parent} and run again to download it."
        ) from None
    if found != wanted:
        raise PipelineError(
            f"{jar.name} is not the file that was pinned (sha256 {found[:16]}... instead of "
            f"{wanted[:16]}...): remove {jar.parent} and run again; if it stays so, what your "
            "package mirror serves is not what its authors published."
        )


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Only one process runs this block; another one waits as long as the first may take."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + BROUGHT_WITHIN_S
    with lock.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise PipelineError(
                        f"Another process brings Spark's jars and does not end: it holds {lock}."
                    ) from None
                time.sleep(LOOK_EVERY_S)
        yield


def resolver(aside: Path) -> list[str]:
    """The command that brings all jars into `aside`/jars."""
    return [sys.executable, "-c", RESOLVE, str(aside), *packages()]


def _bring(folder: Path, note: Say | None) -> None:
    """Downloads through a folder of our own beside it, so that a broken download is not mistaken
    for a whole one."""
    if note is not None:
        note(f"bringing Spark's Kafka connector, Delta and Iceberg (69 MB, once) to {folder}")
    aside = folder.with_suffix(".part")
    shutil.rmtree(aside, ignore_errors=True)  # of one that was killed: we are alone here
    aside.mkdir(parents=True)
    try:
        _resolve(aside)
        for name, wanted in sums().items():
            check(aside / "jars" / name, wanted)
        (aside / "jars").rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _resolve(aside: Path) -> None:
    try:
        done = subprocess.run(
            resolver(aside), capture_output=True, text=True, timeout=BROUGHT_WITHIN_S, cwd=aside
        )
    except subprocess.TimeoutExpired:
        raise PipelineError("Spark's resolver did not bring its jars in 15 minutes.") from None
    if done.returncode:
        raise PipelineError(why_not(done.stderr, aside.with_suffix("")))


def why_not(said: str, folder: Path) -> str:
    """The remedy for a failed resolver, from its output. Knows no Spark."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if away := next((line for line in lines if any(sign in line for sign in NO_NETWORK)), None):
        return (
            f"Spark's jars are not here yet, and where they come from was not reached ({away}): "
            "the first run needs the network (behind a proxy: JAVA_TOOL_OPTIONS="
            "'-Dhttps.proxyHost=... -Dhttps.proxyPort=...'), or copy "
            f"{folder} from a machine that has it."
        )
    telling = [line for line in lines if "Exception" in line or "unresolved" in line]
    reason = (telling or lines or ["it said nothing"])[0]
    return f"Spark's resolver could not bring its jars ({', '.join(packages())}): {reason}"
