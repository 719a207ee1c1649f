"""The cluster: its brokers, its quorum, unhealthy partitions, and a checkup."""

from __future__ import annotations

from aiohttp import web

from headrace.console.access.cluster import checkup, cluster_facts
from headrace.console.console import Console
from headrace.console.views.cluster import checkup_page, cluster_page


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    facts = await console.access.ask(cluster_facts)
    return console.page(
        request,
        "cluster.html",
        title="Cluster",
        section="cluster",
        page=cluster_page(facts),
        quorum=facts.quorum.answer,
        moves=facts.moves.answer or [],
    )


async def show_checkup(console: Console, request: web.Request) -> web.StreamResponse:
    """Shows the checkup on a page of its own: it asks for the settings of every topic."""
    findings = await console.access.ask(checkup)
    return console.page(
        request,
        "checkup.html",
        title="Checkup",
        section="cluster",
        page=checkup_page(findings),
    )
