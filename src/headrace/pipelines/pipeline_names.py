"""Pipelines by name: `file.py:name`, `file.py` if it has only one, or one that comes with it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from headrace.installation import how_to_add
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark.spark_errors import innermost


def pipelines_in(
    path: Path, start_spark: Callable[[], object] | None = None
) -> dict[str, Pipeline]:
    """Returns pipelines by name. The file's own folder can be imported from, as if Python ran the
    file. Some of PySpark's functions, such as `col`, want a Spark that runs: where a file calls
    them outside of its functions, `start_spark` is called and the file loaded again.
    """
    if not path.is_file():
        raise PipelineError(f"There is no file {path}.")
    if str(path.parent.absolute()) not in sys.path:
        sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # pydantic looks names up there
    try:
        try:
            spec.loader.exec_module(module)
        except Exception:
            if start_spark is None or not _wants_spark():
                raise
            start_spark()
            spec.loader.exec_module(module)
    except ModuleNotFoundError as missing:
        raise PipelineError(
            how_to_add(f"{path} needs", "pyspark", "spark")
            if missing.name == "pyspark"
            else f"{path} needs {missing.name}, which is not installed."
        ) from missing
    except PipelineError:
        raise
    except Exception as failure:  # the user's own file may raise anything
        raise PipelineError(
            f"{path} cannot be loaded: {innermost(traceback.format_exc())}."
        ) from failure
    found: dict[str, Pipeline] = {}
    for value in vars(module).values():
        if isinstance(value, Pipeline) and found.setdefault(value.name, value) is not value:
            raise PipelineError(f"{path} has two pipelines called {value.name}.")
    return found


def _wants_spark() -> bool:
    """Whether PySpark has been imported and no Spark runs yet."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is None


def load(which: str, start_spark: Callable[[], object] | None = None) -> Pipeline:
    file, colon, name = which.partition(":")
    if not colon and not file.endswith(".py") and "/" not in file:
        return _shipped(file)
    found = pipelines_in(Path(file), start_spark)
    if not name and len(found) == 1:
        return next(iter(found.values()))
    wanted = found.get(name) or found.get(name.replace("_", "-"))
    if wanted is None:
        names = ", ".join(found) or "none"
        raise PipelineError(f"{file} has no pipeline {name!r}; it has: {names}.")
    return wanted


def _shipped(name: str) -> Pipeline:
    from headrace.pipelines.shipped import SHIPPED

    if name not in SHIPPED:
        raise PipelineError(
            f"No pipeline {name!r} comes with Headrace (there are {', '.join(SHIPPED)}); one of "
            "yours is FILE.py:NAME."
        )
    return SHIPPED[name]
