"""What all pages share: the way to the cluster, templates, the guard, and what was just done."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

import headrace
from headrace.console.access.cluster_access import ClusterAccess
from headrace.console.access.rates import RateMeter
from headrace.console.notices import Notice, Notices
from headrace.console.rendering import Renderer
from headrace.console.security.guard import Guard
from headrace.console.views.commands import Commands

SEE_OTHER = 303
THEME_COOKIE = "headrace-theme"
THEMES = ("light", "dark")


@dataclass(slots=True)
class Console:
    access: ClusterAccess
    guard: Guard
    renderer: Renderer = field(default_factory=Renderer)
    notices: Notices = field(default_factory=Notices)
    meter: RateMeter = field(default_factory=RateMeter)
    is_sampling: bool = False
    streams: set[asyncio.Task[Any] | None] = field(default_factory=set)  # live parts that are open

    @property
    def commands(self) -> Commands:
        return Commands(self.access.bootstrap)

    def page(
        self,
        request: web.Request,
        template: str,
        *,
        title: str,
        section: str,
        status: int = 200,
        **model: Any,
    ) -> web.Response:
        session = self.guard.session_of(request)
        theme = request.cookies.get(THEME_COOKIE)
        html = self.renderer.render(
            template,
            title=title,
            section=section,
            bootstrap=self.access.bootstrap,
            version=headrace.__version__,
            token=self.guard.token_for(request),
            notices=self.notices.take(session),
            theme=theme if theme in THEMES else "auto",
            read_only=self.guard.read_only,
            commands=self.commands,
            here=request.path_qs,
            **model,
        )
        return web.Response(text=html, content_type="text/html", status=status)

    def done(
        self,
        request: web.Request,
        to: str,
        said: str,
        *,
        command: str | None = None,
        good: bool = True,
    ) -> web.Response:
        """Go on to a page that tells what was done; a reload there does nothing again."""
        self.notices.put(self.guard.session_of(request), Notice(said, good, command))
        return web.Response(status=SEE_OTHER, headers={"Location": to})
