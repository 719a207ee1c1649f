"""A running pipeline's numbers for Prometheus, from what it keeps of its last batch.

For alarms: `dead_total` growing means that records cannot become rows; `late_rows_total` that rows
came too late for their window; `behind` says how far the stream is from the end of its topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from headrace.edge.status_server import Page, StatusPages, metrics_page
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder
from headrace.prometheus_text import Family, render

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


def pipeline_families(folder: Folder, now: datetime) -> Iterator[Family]:
    known = (folder.progress() or {}) | folder.compaction()
    labels = {"pipeline": folder.name}
    for kind, suffix, named in (("counter", "_total", COUNTERS), ("gauge", "", GAUGES)):
        for key, (name, explanation) in named.items():
            samples = [(labels, float(known.get(key) or 0))]
            yield Family(f"{PREFIX}{name}{suffix}", kind, explanation, samples)
    for key, (name, explanation) in SINCE.items():
        if (passed := seconds_since(known.get(key), now)) is not None:
            yield Family(f"{PREFIX}{name}", "gauge", explanation, [(labels, passed)])


def seconds_since(moment: Any, now: datetime) -> float | None:
    """Returns seconds since a moment as Spark writes it, 2026-01-31T12:00:00.000Z; None if it is
    not one."""
    try:
        return (now - datetime.fromisoformat(str(moment))).total_seconds()
    except (ValueError, TypeError):
        return None


@contextmanager
def served(folder: Folder, address: str | None) -> Iterator[None]:
    """Serves metrics at `http://HOST:PORT/metrics` while the pipeline runs."""
    if address is None:
        yield
        return
    host, port = _address(address)

    def numbers() -> Page:
        return metrics_page(render(pipeline_families(folder, datetime.now(UTC))))

    try:
        pages = StatusPages("headrace-pipeline", {"/metrics": numbers}, host=host, port=port)
    except OSError as failure:
        raise PipelineError(f"Cannot listen on {address}: {failure.strerror}.") from failure
    try:
        yield
    finally:
        pages.close()


def _address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise PipelineError(f"{address!r} is not HOST:PORT.")
    return host.strip("[]"), int(port)
