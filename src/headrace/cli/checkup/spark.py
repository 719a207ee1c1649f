"""Can pipelines run here? PySpark, a Java that it can use, and its jars. Starts neither."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from headrace.cli.checkup.finding import Finding, good, wrong
from headrace.pipelines import jars
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.java import java_home

ABOUT = "spark"


def check_spark(cache: Path | None = None) -> Finding:
    cache = jars.user_cache() if cache is None else cache
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return good(ABOUT, "not installed; only for pipelines: pip install 'headrace[spark]'")
    if not version.startswith("4.0."):
        return wrong(ABOUT, f"PySpark {version}", "Pipelines need 4.0: pip install pyspark==4.0.*")
    try:
        home = java_home(cache)
    except PipelineError as failure:
        return wrong(ABOUT, f"PySpark {version} without a Java that it can use", str(failure))
    found = f"PySpark {version}, Java in {home}"
    if not jars.folder_below(cache).exists():
        return good(ABOUT, f"{found}; the first run of a pipeline brings {len(jars.SHA256)} jars")
    try:
        jars.checked(cache)
    except PipelineError as failure:
        return wrong(ABOUT, found, str(failure))
    return good(ABOUT, f"{found}, {len(jars.SHA256)} jars as pinned")
