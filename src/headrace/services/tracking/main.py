"""Runs the collector until a signal: listen, take, and at the end write the queue."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.connection import ClientSettings
from headrace.services.tracking.collector import Collector, CollectorLimits, Ledger
from headrace.services.tracking.web import Door, Sites, status_pages

Say = Callable[[str], None]
Address = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Settings:
    listen: Address = ("127.0.0.1", 8090)
    metrics: Address | None = None
    origins: Sequence[str] = ()
    grace_s: float = 30.0


def run(
    connection: ClientSettings, limits: CollectorLimits, settings: Settings, say: Say
) -> Ledger:
    """Runs until SIGINT or SIGTERM; returns the outcome of the events."""
    return asyncio.run(_run(connection, limits, settings, say))


async def _run(
    connection: ClientSettings, limits: CollectorLimits, settings: Settings, say: Say
) -> Ledger:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await serve(connection, limits, settings, say, stop)


async def serve(
    connection: ClientSettings,
    limits: CollectorLimits,
    settings: Settings,
    say: Say,
    stop: asyncio.Event,
) -> Ledger:
    collector = Collector(connection, limits)
    sites = Sites()
    host, port = settings.listen
    try:
        door = Door(collector, settings.origins)
        port = await sites.open_to_the_world(door, host, port)
        say(f"Taking events at http://{host}:{port}/track, for {connection.bootstrap}.")
        if settings.metrics is not None:
            host, port = settings.metrics
            port = await sites.open(status_pages(collector), host, port)
            say(f"Numbers at http://{host}:{port}/metrics.")
        with suppress(asyncio.CancelledError):
            await stop.wait()
    finally:
        await sites.close()
        await collector.close(settings.grace_s)
    return collector.ledger
