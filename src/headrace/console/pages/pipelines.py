"""Pipelines that have run on this machine: state, rows per second, lag, the last error."""

from __future__ import annotations

import asyncio

from aiohttp import web

from headrace.console.access.security import require_observer
from headrace.console.console import Console
from headrace.console.views.services import pipeline_row
from headrace.operations import pipelines as access


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    if console.person is not None:  # files on this machine are not part of the cluster
        await console.access.ask(require_observer)
    found = await asyncio.to_thread(access.look_at, console.pipelines)
    return console.page(
        request,
        "pipelines.html",
        title="Pipelines",
        section="pipelines",
        folder=str(console.pipelines),
        rows=[pipeline_row(each) for each in found],
    )
