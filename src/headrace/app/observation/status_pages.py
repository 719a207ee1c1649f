"""Status pages of an app: `/health`, `/ready` and `/metrics`, for orchestrators and Prometheus.

Healthy: the process works, and its polling thread polls. Ready: it is in its group and may be given
work. Changes nothing. Listens on the given address, loopback by default.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.app.observation.metrics import AppMetrics
from headrace.edge.status_server import Page, StatusPages, metrics_page, verdict_page
from headrace.prometheus_text import render

if TYPE_CHECKING:
    from headrace.app.app import App


class AppStatusPages(StatusPages):
    """Serves the pages from its creation until `close`."""

    def __init__(self, app: App, *, host: str = "127.0.0.1", port: int = 0) -> None:
        numbers = AppMetrics(app)
        one_at_a_time = threading.Lock()  # a scrape may ask the cluster

        def metrics() -> Page:
            with one_at_a_time:
                return metrics_page(render(numbers.families()))

        pages = {
            "/health": lambda: _said(healthy(app)),
            "/ready": lambda: _said(ready(app)),
            "/metrics": metrics,
        }
        super().__init__("headrace-app", pages, host=host, port=port)


def _said(problem: str | None) -> Page:
    return verdict_page(problem is None, problem=problem)


def healthy(app: App) -> str | None:
    """None, or what is wrong."""
    worker = app.worker
    if worker is None:
        return "the app is not running"
    if worker.failure is not None:
        return f"the app has failed: {worker.failure}"
    return None


def ready(app: App) -> str | None:
    """None, or what the app waits for."""
    problem = healthy(app)
    if problem is not None:
        return problem
    worker = app.worker
    if worker is None or not worker.started.is_set():
        return "the app has not joined its group yet"
    return None
