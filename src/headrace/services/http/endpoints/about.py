"""The HTTP API about itself: a page that shows the OpenAPI document, health, numbers."""

from __future__ import annotations

import functools
import json
from importlib import resources

from aiohttp import web

import headrace
from headrace.prometheus_text import render
from headrace.services.http.dialects import openapi as openapi_document
from headrace.services.http.exchange import JSON, Exchange, answer

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@functools.cache
def _asset(name: str) -> bytes:
    return resources.files("headrace.services.http").joinpath("assets", name).read_bytes()


@functools.cache
def _document() -> bytes:
    return json.dumps(openapi_document.document(headrace.__version__)).encode()


async def page(exchange: Exchange) -> web.StreamResponse:
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": PAGE_POLICY,
        "Referrer-Policy": "no-referrer",
    }
    return web.Response(body=_asset("page.html"), headers=headers)


async def script(exchange: Exchange) -> web.StreamResponse:
    return web.Response(body=_asset("page.js"), headers={"Content-Type": "text/javascript"})


async def style(exchange: Exchange) -> web.StreamResponse:
    return web.Response(body=_asset("page.css"), headers={"Content-Type": "text/css"})


async def openapi(exchange: Exchange) -> web.StreamResponse:
    return web.Response(body=_document(), headers={"Content-Type": JSON})


async def health(exchange: Exchange) -> web.StreamResponse:
    """Answers without asking the cluster: an orchestrator must not end a server because a broker is
    away."""
    door = exchange.door
    ok = not door.draining
    said = {"ok": ok, "draining": door.draining, "requests": door.budget.requests}
    return answer(said, status=200 if ok else 503)


async def metrics(exchange: Exchange) -> web.StreamResponse:
    body = render(exchange.door.families()).encode()
    return web.Response(body=body, headers={"Content-Type": PROMETHEUS_TEXT})


ENDPOINTS = {
    "page": page,
    "script": script,
    "style": style,
    "openapi": openapi,
    "health": health,
    "metrics": metrics,
}
