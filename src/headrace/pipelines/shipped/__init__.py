"""PIPELINES THAT COME WITH HEADRACE: `headrace pipeline run NAME`, no file needed.

Loading this package does not load Spark.
"""

from __future__ import annotations

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.shipped import host_metrics, logs, web_tracking

GROUPS = (web_tracking.PIPELINES, logs.PIPELINES, host_metrics.PIPELINES)
SHIPPED: dict[str, Pipeline] = {one.name: one for group in GROUPS for one in group}
