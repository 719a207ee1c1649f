"""`--metrics HOST:PORT`: a node's `/metrics` over HTTP, from a thread of its own.

A slow scraper then never costs the loop more than the interpreter's attention. Loaded only when it
is asked for: Python's HTTP server takes as long to load as the rest of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.edge.status_server import StatusPages, metrics_page
from headrace.prometheus_text import Family, render


class MetricsEndpoint(StatusPages):
    """Serves /metrics on a thread; ends with `close`."""

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[Family]]) -> None:
        pages = {"/metrics": lambda: metrics_page(render(families()))}
        super().__init__("headrace-metrics", pages, host=host, port=port)
