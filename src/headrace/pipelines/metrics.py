"""A running pipeline's numbers for Prometheus, from what it keeps of its last batch.

For alarms: `dead_total` growing means that records cannot become rows; `late_rows_total` that rows
came too late for their window; `behind` says how far the stream is from the end of its topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.installation import command_to_add
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "headrace_pipeline_"
# By the name in what is kept of the last batch.
COUNTERS = {
    "rows_total": ("rows", "Rows read."),
    "dead": ("dead", "Records that could not become rows."),
    "late_total": ("late_rows", "Rows that came too late for their window."),
    "compactions": ("compactions", "Compactions of the table between batches."),
    "files_compacted": ("compacted_files", "Files that compaction replaced by larger ones."),
    "files_vacuumed": ("vacuumed_files", "Files of old versions that were removed."),
    "compaction_ms": ("compaction_milliseconds", "How long compactions took, in all."),
}
GAUGES = {
    "batch": ("batch", "The number of the last batch with rows."),
    "behind": ("behind", "Records of the topic beyond the last batch."),
    "state_rows": ("state_rows", "Rows kept in state."),
    "state_bytes": ("state_bytes", "Memory of the state."),
    "took_ms": ("batch_milliseconds", "How long the last batch took."),
    "small_files": ("small_files", "Small files of the table after the last compaction."),
    "rows_per_second": ("rows_per_second", "Rows of the last batch by its time."),
}
# Moments, as seconds that have passed since.
SINCE = {
    "time": ("seconds_since_batch", "Since the last batch with rows began."),
    "event_time": ("event_time_delay_seconds", "Since the newest event time of the last batch."),
}


class PipelineCollector:
    """The method that `prometheus_client` calls."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        known = (self._folder.progress() or {}) | self._folder.compaction()
        for kind, named in ((CounterMetricFamily, COUNTERS), (GaugeMetricFamily, GAUGES)):
            for key, (name, text) in named.items():
                family = kind(PREFIX + name, text, labels=["pipeline"])
                family.add_metric([self._folder.name], float(known.get(key) or 0))
                yield family
        for key, (name, text) in SINCE.items():
            if (passed := seconds_since(known.get(key), datetime.now(UTC))) is not None:
                family = GaugeMetricFamily(PREFIX + name, text, labels=["pipeline"])
                family.add_metric([self._folder.name], passed)
                yield family


def seconds_since(moment: Any, now: datetime) -> float | None:
    """From a moment as Spark writes it, 2026-01-31T12:00:00.000Z; None for what is none."""
    try:
        return (now - datetime.fromisoformat(str(moment))).total_seconds()
    except (ValueError, TypeError):
        return None


@contextmanager
def served(folder: Folder, address: str | None) -> Iterator[None]:
    """At `http://HOST:PORT/metrics` while the pipeline runs."""
    if address is None:
        yield
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ModuleNotFoundError:
        raise PipelineError(
            f"--metrics needs prometheus-client: {command_to_add('spark')}"
        ) from None
    host, port = _address(address)
    registry = CollectorRegistry()
    collector: Any = PipelineCollector(folder)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as failure:
        raise PipelineError(f"Cannot listen on {address}: {failure.strerror}.") from failure
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise PipelineError(f"{address!r} is not HOST:PORT.")
    return host.strip("[]"), int(port)
