"""What Prometheus reads: counters that the loop keeps in slots, added up only when asked.

`--metrics HOST:PORT` serves `/metrics` from a thread of its own, so that a slow scraper never costs
the loop more than the interpreter's attention. Text format 0.0.4. Does not keep history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.serving.dispatch import Route

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLOWEST_SCRAPER_SECONDS = 10

Sample = tuple[dict[str, Any], float]


class Family:
    """One metric with its samples, as the text format wants it."""

    def __init__(self, name: str, kind: str, explanation: str, samples: Iterable[Sample]) -> None:
        self.name = name
        self.kind = kind
        self.explanation = explanation
        self.samples = samples

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.explanation}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            yield f"{self.name}{_labels(labels)} {_number(value)}"


def _labels(labels: dict[str, Any]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(str(value))}"' for key, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def render(families: Iterable[Family]) -> str:
    return "\n".join(line for family in families for line in family.lines()) + "\n"


def request_families(routes: Iterable[Route]) -> Iterator[Family]:
    """Per API: counts, refusals and the histogram of latencies (2^n microseconds)."""
    used = [route for route in routes if route.requests]
    yield Family(
        "headrace_requests_total",
        "counter",
        "Requests by API and version.",
        [({"api": r.name, "version": r.version}, r.requests) for r in used],
    )
    buckets: dict[str, list[int]] = {}
    sums: dict[str, int] = {}
    for route in used:
        total = buckets.setdefault(route.name, [0] * len(route.buckets))
        buckets[route.name] = [a + b for a, b in zip(total, route.buckets, strict=True)]
        sums[route.name] = sums.get(route.name, 0) + route.microseconds
    yield LatencyFamily(buckets, sums)


class LatencyFamily(Family):
    """A histogram has three kinds of lines."""

    def __init__(self, buckets: dict[str, list[int]], sums: dict[str, int]) -> None:
        super().__init__(
            "headrace_request_seconds",
            "histogram",
            "From the arrival of a request to its reply, waiting included.",
            [],
        )
        self.buckets = buckets
        self.sums = sums

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        for api, counts in self.buckets.items():
            total = 0
            for bits, count in enumerate(counts[:-1]):
                total += count
                limit = (1 << bits) / 1_000_000
                yield f'{self.name}_bucket{{api="{api}",le="{limit!r}"}} {total}'
            total += counts[-1]
            yield f'{self.name}_bucket{{api="{api}",le="+Inf"}} {total}'
            yield f'{self.name}_sum{{api="{api}"}} {self.sums[api] / 1_000_000!r}'
            yield f'{self.name}_count{{api="{api}"}} {total}'


class MetricsServer:
    """Serves /metrics on a thread; ends with `close`."""

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[Family]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = SLOWEST_SCRAPER_SECONDS

            def do_GET(self) -> None:
                if self.path.split("?")[0] != "/metrics":
                    self.send_error(404, "Ask for /metrics")
                    return
                body = render(families()).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """A scrape is not worth a line."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="headrace-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
