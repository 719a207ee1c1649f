"""Style sheets, scripts and the icon, by name from one folder; and whether the console runs."""

from __future__ import annotations

from aiohttp import web

from headrace.console.console import Console
from headrace.console.renderer import ASSETS

KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
KEPT = "public, max-age=31536000, immutable"  # its address changes with its bytes


async def serve(console: Console, request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    known = {path.name: path for path in ASSETS.iterdir() if path.suffix in KINDS}
    if name not in known:
        raise web.HTTPNotFound
    path = known[name]
    return web.Response(
        body=path.read_bytes(),
        content_type=KINDS[path.suffix],
        charset="utf-8",
        headers={"Cache-Control": KEPT if "v" in request.query else "no-cache"},
    )


async def health(console: Console, request: web.Request) -> web.StreamResponse:
    return web.json_response({"ok": True})
