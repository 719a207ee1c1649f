"""A relay as a process: `headrace outbox relay`. Runs until SIGTERM or SIGINT.

The first signal ends it in good order: transactions under way are ended, leases are given back. A
second one ends it at once, which loses nothing either.
"""

from __future__ import annotations

import gc
import logging
import sys
from http import HTTPStatus

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from headrace.client.connection import ClientSettings
from headrace.edge.status_server import Page, StatusPages, metrics_page, verdict_page
from headrace.services.outbox.relay import Relay, Settings
from headrace.stop_signals import stopped_by_signals

log = logging.getLogger("headrace.outbox")

# A thread that computes lets the others wait for so long. With Python's 5 ms the look for stable
# rows took 4 ms at 1,000 rows/s, with this 1 ms; a row costs a tenth more of processor time.
SWITCH_THREADS_S = 0.0005


def serve(
    engine: Engine, at: ClientSettings, settings: Settings, metrics: tuple[str, int] | None = None
) -> Relay:
    """Raises OSError if the address of the metrics is taken."""
    relay = Relay(engine, at, settings)
    with stopped_by_signals(relay.stop):
        _collect_less()
        sys.setswitchinterval(SWITCH_THREADS_S)
        served = None if metrics is None else _served(relay, metrics)
        try:
            relay.run()
        finally:
            if served is not None:
                served.close()
    return relay


def _collect_less() -> None:
    """A batch makes 20,000 objects in a moment, none of them in a cycle: to look for cycles after
    every 700 took a third of the time per row."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _served(relay: Relay, address: tuple[str, int]) -> StatusPages:
    """`/metrics` for Prometheus, `/health` for orchestrators."""

    def numbers() -> Page:
        try:
            return metrics_page(relay.metrics())
        except (SQLAlchemyError, OSError):
            said = b"the database does not answer\n"
            return Page(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", said)

    def health() -> Page:
        wrong = [each.halted for each in relay.workers.values() if each.halted]
        return verdict_page(not wrong, problems=wrong)

    host, port = address
    pages = {"/metrics": numbers, "/health": health}
    served = StatusPages("headrace-outbox", pages, host=host, port=port)
    log.info("numbers at http://%s:%d/metrics", host, served.port)
    return served
