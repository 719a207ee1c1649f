"""A shipper as a process: until SIGINT or SIGTERM, with numbers for Prometheus beside it.

The first signal ends it in good order: what was read is written, positions are kept. A second one
ends it at once, which loses nothing either (`stop_signals.py`).
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from headrace.services.shipping.roster import MOST_FILES

Address = tuple[str, int]


class AddressRefused(Exception):
    """The numbers cannot be served; the text says why."""


def allow_many_files() -> None:
    """As the roster may open, and what else a process needs; the usual bound is a quarter."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_FILES
    if now != resource.RLIM_INFINITY and now < wanted:
        bound = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        with suppress(OSError, ValueError):  # then files beyond the limit are reported
            resource.setrlimit(resource.RLIMIT_NOFILE, (bound, most))


def collect_rarely() -> None:
    """Python looks for garbage in cycles each time 700 more objects are there, and then through all
    that wait for the cluster: a third of the time of a line (measured). Here nothing makes many
    cycles; what was loaded at the start is not looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@contextmanager
def numbers_at(
    address: Address | None, metrics: Callable[[], str], note: Callable[[str], None]
) -> Iterator[None]:
    """`/metrics` and `/health` at an address; raises AddressRefused, as when it is taken."""
    if address is None:
        yield
        return
    from headrace.edge.status_server import StatusPages, metrics_page, verdict_page

    pages = {
        "/metrics": lambda: metrics_page(metrics()),
        "/health": lambda: verdict_page(True),
    }
    host, port = address
    try:
        served = StatusPages("headrace-ship", pages, host=host, port=port)
    except OSError as failure:
        why = failure.strerror or failure
        raise AddressRefused(f"Cannot serve the numbers: {why}.") from failure
    note(f"Numbers at http://{host}:{served.port}/metrics.")
    try:
        yield
    finally:
        served.close()
