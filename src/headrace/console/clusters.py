"""Several clusters in one console: each has its pages under `/c/NAME/`, and all share a switch.

The clusters share the listener and the file of the activity, nothing else: each has its own
access, login, session, form tokens, samples and jobs. So a form that was opened on one cluster
never acts on another. Addresses without a cluster lead to the first one.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from headrace.console.application import Handler, application
from headrace.console.console import SEE_OTHER, Console, ShownCluster
from headrace.console.renderer import CLUSTERS, link
from headrace.console.security.guard import LARGEST_BODY_BYTES, RequestRefused


def base_of(name: str) -> str:
    """Returns the path before all pages of a cluster."""
    return CLUSTERS.rstrip("/") + link(name)


def application_of(consoles: Sequence[Console]) -> web.Application:
    """Returns the application of one cluster, or of several."""
    if len(consoles) == 1:
        return application(consoles[0])
    shown = tuple(
        ShownCluster(each.name, base_of(each.name) + "/", each.access.bootstrap)
        for each in consoles
    )
    app = web.Application(client_max_size=LARGEST_BODY_BYTES)
    elsewhere = _to_a_cluster(consoles)
    for console in consoles:
        console.clusters = shown
        app.router.add_get(base_of(console.name), elsewhere)
        app.add_subapp(base_of(console.name), application(console))
    app.router.add_route("*", "/{tail:.*}", elsewhere)
    return app


def _to_a_cluster(consoles: Sequence[Console]) -> Handler:
    first, bases = consoles[0], [base_of(each.name) for each in consoles]

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            await first.guard.check(request)
            if request.path == "/health":
                response = web.json_response({"ok": True})
            elif request.path in bases:
                response = web.Response(status=SEE_OTHER, headers={"Location": f"{request.path}/"})
            elif request.method == "GET" and not request.path.startswith(CLUSTERS):
                response = web.Response(status=SEE_OTHER, headers={"Location": request.path_qs})
            else:
                response = web.Response(status=404, text="There is no such page.")
        except RequestRefused as refusal:
            response = web.Response(status=refusal.status, text=str(refusal))
        first.guard.finish(request, response)
        return response

    return elsewhere
