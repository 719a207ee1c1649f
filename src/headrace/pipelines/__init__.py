"""DATA PIPELINES ON SPARK: a topic becomes a table through one Python function.

`from headrace.pipelines import Table, Topic, pipeline`. Declaring a pipeline needs no Spark;
running one needs the extra `headrace[spark]`.
"""

from __future__ import annotations

from headrace.pipelines.days import by_day, day
from headrace.pipelines.declaration import Console, Jdbc, Pipeline, Table, Topic, pipeline
from headrace.pipelines.expectation import expect
from headrace.pipelines.topic_frame import read

__all__ = [
    "Console",
    "Jdbc",
    "Pipeline",
    "Table",
    "Topic",
    "by_day",
    "day",
    "expect",
    "pipeline",
    "read",
]
