"""DATA PIPELINES ON SPARK: a topic becomes a table through one Python function.

`from headrace.pipelines import Console, Jdbc, Table, Topic, pipeline`. Declaring one needs no
Spark; running one needs the extra `headrace[spark]`.
"""

from __future__ import annotations

from headrace.pipelines.declaration import Console, Jdbc, Pipeline, Table, Topic, pipeline

__all__ = ["Console", "Jdbc", "Pipeline", "Table", "Topic", "pipeline"]
