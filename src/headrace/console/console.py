"""The state that all pages share: the connection to the cluster, templates, the guard, and
notices."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web

import headrace
from headrace.console.access.cluster_access import ClusterAccess
from headrace.console.audit import Audit, Change
from headrace.console.history.sampler import Sampler
from headrace.console.jobs.owner import Jobs
from headrace.console.notices import Notice, Notices
from headrace.console.renderer import Renderer
from headrace.console.security.guard import Guard
from headrace.console.security.logins import LoginLimits, People, Person
from headrace.console.views.commands import Commands

SEE_OTHER = 303
THEME_COOKIE = "headrace-theme"
THEMES = ("light", "dark")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True, frozen=True)
class ShownCluster:
    """One of several clusters, in the switch at the top of each page."""

    name: str
    address: str  # of its pages
    bootstrap: str


@dataclass(slots=True)
class Console:
    """One cluster. A console of several clusters has one of these for each."""

    access: ClusterAccess
    guard: Guard
    renderer: Renderer = field(default_factory=Renderer)
    notices: Notices = field(default_factory=Notices)
    audit: Audit = field(default_factory=lambda: Audit(now_ms))
    people: People | None = None  # None: users need not log in
    login_limits: LoginLimits = field(default_factory=LoginLimits)
    person: Person | None = None  # the user who sent the request
    sampler: Sampler | None = None  # None: lag is not kept
    jobs: Jobs = field(default_factory=lambda: Jobs(now_ms))
    outboxes: tuple[str, ...] = ()  # addresses of databases
    pipelines: Path = Path()  # the folder of their state
    park_to: str = ""  # where backlogs are parked: a database's address or a folder; "": nowhere
    name: str = ""  # of the cluster, if the console shows several
    clusters: tuple[ShownCluster, ...] = ()  # all that the console shows; () for one
    streams: dict[asyncio.Task[Any], str] = field(default_factory=dict)  # live parts, by browser

    @property
    def commands(self) -> Commands:
        return Commands(self.access.bootstrap)

    def seen_by(self, person: Person | None) -> Console:
        """Returns the same console with a user's own access to the cluster."""
        return self if person is None else replace(self, access=person.access, person=person)

    async def part_with(self, person: Person) -> None:
        """Ends a user's session: stops the user's jobs and forgets the password."""
        self.jobs.stop_all_of(person)
        await person.access.close()

    @property
    def by(self) -> str:
        """The user, for the journal."""
        return f"{self.person.name} (console)" if self.person is not None else _owner()

    def note(self, person: str, address: str, path: str, what: str, *, done: bool) -> None:
        """Writes to the audit, with the name of the cluster."""
        cluster = self.access.cluster
        self.audit.note(person, address, path, what, done=done, cluster=cluster)

    @property
    def activity(self) -> list[Change]:
        """Returns what was done on this cluster, the oldest first."""
        here = (self.access.cluster, self.access.bootstrap)
        return [each for each in self.audit.recent if each.cluster in here]

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
            answers=self.access.answers,
            version=headrace.__version__,
            token=self.guard.token_for(request),
            notices=self.notices.take(session),
            theme=theme if theme in THEMES else "auto",
            read_only=self.guard.read_only,
            person=None if self.person is None else self.person.name,
            asks_logins=self.people is not None,
            commands=self.commands,
            here=request.path_qs,
            cluster_name=self.name,
            clusters=self.clusters,
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
        told_once: str = "",
    ) -> web.Response:
        """Redirects to a page that shows what was done; a reload there does not repeat it.
        `told_once` is shown to this user only, and is not written to the audit."""
        self.note(self.by, request.remote or "", self.guard.path_of(request), said, done=good)
        notice = Notice(said, good, command, told_once)
        self.notices.put(self.guard.session_of(request), notice)
        return web.Response(status=SEE_OTHER, headers={"Location": to})


def _owner() -> str:
    """The user who runs the console: acts for all users if there is no login."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()} (console)"
