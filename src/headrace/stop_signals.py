"""SIGTERM and SIGINT end a service in an orderly way; a second signal ends its process at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Inside, the first signal calls `stop`; afterwards signals have their earlier effect."""

    def told(number: int, frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        stop()

    before = {each: signal.signal(each, told) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
