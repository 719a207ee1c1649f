"""The first page: the cluster at a glance, its rates live, and a first message for newcomers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from headrace.console import live
from headrace.console.access import overview as access
from headrace.console.access.parts import Part
from headrace.console.access.security import require_observer
from headrace.console.console import Console
from headrace.console.history.lag_store import FINE
from headrace.console.history.sampler import Sampler
from headrace.console.views.overview import ThroughputCharts, overview_page, throughput_charts
from headrace.console.views.services import ENDED, RUNS, PipelineRow, pipeline_row
from headrace.operations.group_lags import lagging_groups
from headrace.operations.pipelines import look_at

SAMPLE_EVERY_S = 2.0
MOST_PIPELINES = 6


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    ask = console.access.part
    found = await asyncio.gather(
        # If this fails, there is nothing to show on the page.
        console.access.ask(access.topic_counts),
        ask(access.cluster),
        ask(lagging_groups, None if console.sampler is None else console.sampler.latest),
        ask(access.pending),
    )
    topics, cluster, groups, delayed = found
    pipelines = await _pipelines(console)
    page = overview_page(access.OverviewFacts(cluster, Part(topics), groups, delayed))
    everybody = console.sampler if console.person is None else None
    return console.page(
        request,
        "overview.html",
        title="Overview",
        section="overview",
        page=page,
        read_per_s=None if everybody is None else everybody.read_per_s,
        throughput=None if everybody is None else await asyncio.to_thread(_throughput, everybody),
        pipelines=pipelines[:MOST_PIPELINES],
        pipelines_left=max(len(pipelines) - MOST_PIPELINES, 0),
        growing=_growing(everybody, [topic for topic, _ in page.dead]),
    )


def _throughput(sampler: Sampler) -> ThroughputCharts:
    now_s = int(sampler.wall_s())
    return throughput_charts(sampler.store.throughput(now_s - FINE.kept_s), now_s)


async def _pipelines(console: Console) -> list[PipelineRow]:
    """Returns pipelines, failed ones first; none for a user who may not see the files of this
    machine."""
    if console.person is not None:
        right = await console.access.part(require_observer)
        if right.missing:
            return []
    found = await asyncio.to_thread(look_at, console.pipelines)
    return sorted(map(pipeline_row, found), key=lambda row: (row.state in (RUNS, ENDED), row.name))


def _growing(sampler: Sampler | None, topics: list[str]) -> dict[str, float]:
    """Letters per second into each of these topics that grows."""
    per_s = {} if sampler is None else sampler.written.per_s
    return {topic: per_s[topic] for topic in topics if per_s.get(topic)}


async def show_connection(console: Console, request: web.Request) -> web.StreamResponse:
    """Whether a broker answers, for the dot of a page that stays open."""
    if console.access.answers is None:
        await console.access.part(access.cluster)
    return web.json_response({"answers": bool(console.access.answers)})


async def live_rates(console: Console, request: web.Request) -> web.StreamResponse:
    return await live.stream(console, request, _samples(console))


async def _samples(console: Console) -> AsyncIterator[tuple[str, Any]]:
    mine = console.access
    meter = mine.meter
    while True:
        # All open pages share the samples; the first request that is due takes one.
        if meter.age_s(time.monotonic()) >= SAMPLE_EVERY_S * 0.9 and not mine.is_metering:
            mine.is_metering = True
            try:
                ends = await console.access.ask(access.ends_of_topics)
                meter.note(ends, time.monotonic())
            finally:
                mine.is_metering = False
        if meter.rates is not None:
            rates = meter.rates
            yield (
                "rates",
                {"total": rates.total, "busiest": rates.busiest, "history": rates.history},
            )
        await asyncio.sleep(SAMPLE_EVERY_S)
