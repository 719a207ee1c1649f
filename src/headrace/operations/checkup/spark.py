"""Checks whether pipelines can run here: PySpark, a suitable Java, and its jars. Starts neither."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from headrace.installation import command_to_add
from headrace.operations.checkup.finding import Finding, good, wrong
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark import jars
from headrace.pipelines.spark.java import java_home

ABOUT = "spark"


def check_spark(cache: Path | None = None) -> Finding:
    """One finding with everything that is missing."""
    cache = jars.user_cache() if cache is None else cache
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return good(ABOUT, f"not installed; only for pipelines: {command_to_add('spark')}")
    found, missing = [f"PySpark {version}"], []
    if jars.line_of(version) is None:
        missing.append(f"Pipelines need PySpark {jars.LINES}: {command_to_add('spark')}")
    try:
        found.append(f"Java in {java_home(cache)}")
    except PipelineError as failure:
        missing.append(str(failure))
    try:
        if jars.folder_below(cache).exists():
            jars.checked(cache)
            found.append(f"{len(jars.sums())} jars as pinned")
        else:
            found.append(f"the first run of a pipeline brings {len(jars.sums())} jars")
    except PipelineError as failure:
        missing.append(str(failure))
    if missing:
        return wrong(ABOUT, ", ".join(found), " ".join(missing))
    return good(ABOUT, ", ".join(found))
