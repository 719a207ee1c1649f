"""The cluster: its brokers, its quorum, and partitions that are not well."""

from __future__ import annotations

from aiohttp import web

from headrace.console.access.cluster import cluster_facts
from headrace.console.console import Console
from headrace.console.views.cluster import cluster_page


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    facts = await console.access.ask(cluster_facts)
    return console.page(
        request,
        "cluster.html",
        title="Cluster",
        section="cluster",
        page=cluster_page(facts),
        quorum=facts.quorum.answer,
        replicas=facts.replicas,
        moves=facts.moves.answer or [],
    )
