"""The console on a thread, and a browser without scripts that speaks to it."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
import threading
from collections.abc import Coroutine
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from headrace.client.connection import ClientSettings, connection
from headrace.console.main import Settings, Site

LONGEST_START_S = 120


class Served:
    """`with Served(bootstrap) as console:` serves until the block ends."""

    def __init__(self, cluster: str | ClientSettings, **settings: Any) -> None:
        at = connection(bootstrap=cluster) if isinstance(cluster, str) else cluster
        self.site = Site(at, Settings("localhost", 0, **settings))
        self.address = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(LONGEST_START_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None, "it serves"
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LONGEST_START_S)

    def _run(self) -> None:
        # As the product does: it also ends handlers that still read what a client, which is gone,
        # had begun to send.
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.address = await self.site.open()
        self._ready.set()
        await self._stop.wait()
        await self.site.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """On the console's own loop."""
        assert self._loop is not None, "it serves"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LONGEST_START_S)

    def visitor(self, trusts: Path | None = None) -> Visitor:
        return Visitor(self.address, trusts)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, headers, text

    def token(self) -> str:
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.text)
        assert found is not None, self.text[:2000]
        return found[1]

    def said(self) -> str:
        """What a person reads: without tags, in one line."""
        body = re.sub(r"<(script|style).*?</\1>", " ", self.text, flags=re.S)
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


class Visitor:
    """Keeps its cookies, follows a redirect after a form, runs no script."""

    def __init__(self, address: str, trusts: Path | None = None) -> None:
        self.name = address.partition("://")[2]
        self.cookies: dict[str, str] = {}
        self._trusts = trusts

    def _connection(self) -> http.client.HTTPConnection:
        if self._trusts is None:
            return http.client.HTTPConnection(self.name, timeout=120)
        context = ssl.create_default_context(cafile=str(self._trusts))
        return http.client.HTTPSConnection(self.name, timeout=120, context=context)

    def log_in(self, user: str, password: str, to: str = "/") -> Answer:
        token = self.get("/login").token()
        fields = {"user": user, "password": password, "to": to}
        return self.post("/login", fields, token=token)

    def get_cookies(self) -> dict[str, str]:
        """Those that the first page gives."""
        self.get("/")
        return self.cookies

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(
        self, path: str, fields: dict[str, str], *, token: str | None = None, **headers: str
    ) -> Answer:
        """Without a token given, one is taken from a page of ours first."""
        token = self.get("/create-topic").token() if token is None else token
        answer = self._ask("POST", path, urlencode({**fields, "token": token}), headers)
        while answer.status == 303:
            answer = self.get(answer.headers["Location"])
        return answer

    def _ask(self, method: str, path: str, body: str | None, more: dict[str, str]) -> Answer:
        asked = self._connection()
        headers = {"Host": self.name} | {
            name.replace("_", "-"): text for name, text in more.items()
        }
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        if body is not None:
            headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        try:
            asked.request(method, path, body, headers)
            answer = asked.getresponse()
            text = answer.read().decode()
        finally:
            asked.close()
        for name, value in answer.getheaders():
            if name == "Set-Cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return Answer(answer.status, dict(answer.getheaders()), text)

    def frames(self, path: str, count: int) -> list[str]:
        """The first events of a live part."""
        asked = self._connection()
        asked.request("GET", path, headers={"Host": self.name})
        answer = asked.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        found: list[str] = []
        frame = ""
        while len(found) < count:
            line = answer.readline().decode()
            assert line, "the stream ended"
            if line == "\n":
                if "event:" in frame:
                    found.append(frame)
                frame = ""
            else:
                frame += line
        asked.close()
        return found
