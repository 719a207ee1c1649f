"""PIPELINES THAT COME WITH IT: `headrace pipeline run NAME`, no file needed.

Loading this loads no Spark.
"""

from __future__ import annotations

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.shipped import web_tracking

SHIPPED: dict[str, Pipeline] = {one.name: one for one in web_tracking.PIPELINES}
