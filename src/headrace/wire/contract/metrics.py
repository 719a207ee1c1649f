"""Samples of host metrics: the topic, the fields of a value, and how a series is named.

The format that the agent writes and the shipped pipelines read. A value is one JSON object: the
numbers of one host at one moment, by the name of their series, such as `cpu_percent` or
`disk_used_percent{mount="/"}`. Its key is the host. A moment with many numbers is several records.
"""

from __future__ import annotations

from collections.abc import Mapping

TOPIC = "metrics"
ALERTS = "metric-alerts"

DDL = (
    "id STRING NOT NULL, time TIMESTAMP NOT NULL, host STRING NOT NULL, "
    "metrics MAP<STRING, DOUBLE> NOT NULL"
)


def series(name: str, labels: Mapping[str, str] | None = None) -> str:
    """Returns the series as Prometheus writes it, labels sorted by name."""
    if not labels:
        return name
    said = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{said}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
