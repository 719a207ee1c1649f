"""Logging in with a user of the cluster, and out again.

The cluster checks the password, which stays in memory as long as the session lasts.
"""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError, LoginRefused
from headrace.client.wire import Wire
from headrace.console.access.cluster_access import PERSONAL_THREADS, ClusterAccess
from headrace.console.console import SEE_OTHER, Console
from headrace.console.query import needed, text_in
from headrace.console.security.guard import RequestRefused
from headrace.console.security.logins import Person

LONGEST_NAME, LONGEST_PASSWORD = 1_000, 4_000
LONGEST_LOGIN_S = 15.0
# Settings of the console's own user, which a user's connection must not have.
OWN_LOGIN = frozenset(
    {
        "sasl.username",
        "sasl.password",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)


async def show(console: Console, request: web.Request) -> web.StreamResponse:
    if console.people is None or console.person is not None:
        return web.Response(status=SEE_OTHER, headers={"Location": "/"})
    return console.page(
        request, "login.html", title="Log in", section="", to=_local(text_in(request.query, "to"))
    )


async def log_in(console: Console, request: web.Request) -> web.StreamResponse:
    if console.people is None:
        raise RequestRefused(404, "This console has no logins.")
    form = await request.post()
    name = needed(form, "user", "The user")[:LONGEST_NAME]
    password = needed(form, "password", "The password")[:LONGEST_PASSWORD]
    to = _local(text_in(form, "to"))
    address, now_s = request.remote or "", time.monotonic()
    if (wait_s := console.login_limits.wait_s(name, address, now_s)) > 0:
        raise RequestRefused(
            429, f"Too many failed logins; try again in {wait_s / 60:.0f} minutes."
        )
    at = personal(console.access.connection, name, password)
    # Counted before it is known to fail: many attempts at once are many attempts.
    console.login_limits.failed(name, address, now_s)
    try:
        await asyncio.wait_for(asyncio.to_thread(_knock, at), LONGEST_LOGIN_S)
    except LoginRefused:
        console.note(name, address, "/login", "Login failed.", done=False)
        sentence = "The cluster does not know this user and password."
        return _again(console, request, to, sentence, 401)
    except TimeoutError:
        return _again(console, request, to, "The cluster did not answer in time.", 504)
    except ClientError as failure:
        return _again(console, request, to, str(failure), 503)
    console.login_limits.succeeded(name, address, now_s)
    person = Person(name, ClusterAccess(at, threads=PERSONAL_THREADS), now_s, now_s)
    # A session that was known before the login must not be the one that is logged in.
    gone = console.people.begin(console.guard.renew_session(), person)
    for each in gone:
        await console.part_with(each)
    console.note(name, address, "/login", "Logged in.", done=True)
    return web.Response(status=SEE_OTHER, headers={"Location": to})


def _again(
    console: Console, request: web.Request, to: str, sentence: str, status: int
) -> web.StreamResponse:
    return console.page(
        request,
        "login.html",
        title="Log in",
        section="",
        status=status,
        to=to,
        sentence=sentence,
    )


async def log_out(console: Console, request: web.Request) -> web.StreamResponse:
    if console.people is not None:
        person = console.people.end(console.guard.session_of(request))
        console.guard.renew_session()
        if person is not None:
            await console.part_with(person)
    return web.Response(status=SEE_OTHER, headers={"Location": "/login"})


def personal(own: ClientSettings, name: str, password: str) -> ClientSettings:
    """Returns the console's connection settings with a user's login instead of its own."""
    settings = {key: value for key, value in own.settings.items() if key not in OWN_LOGIN}
    settings |= {"sasl.username": name, "sasl.password": password}
    return ClientSettings(settings, own.timeout_s, quiet=True)


def _knock(at: ClientSettings) -> None:
    """Tries a login. Raises `LoginRefused`, or another error of the brokers; the first broker that
    answers decides."""
    failure: ClientError | None = None
    for address in addresses(at.bootstrap):
        try:
            with Wire(at, address):
                return
        except LoginRefused:
            raise
        except ClientError as refusal:
            failure = refusal
    raise failure or ClientError("No broker answers.")


def _local(said: str) -> str:
    """Returns a path of this console to go back to, never another site."""
    if said.startswith("/") and not said.startswith(("//", "/\\")) and said.isprintable():
        return said
    return "/"
