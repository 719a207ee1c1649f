"""A door in the test's own process, on a thread, and a caller of the standard library."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.client.connection import ClientSettings, connection
from headrace.services.http.door import Door
from headrace.services.http.limits import HttpLimits
from headrace.services.http.main import Settings, Site

PATIENCE_S = 180


@dataclass(slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """Use as a context manager."""

    def __init__(
        self,
        cluster: str | ClientSettings,
        *,
        limits: HttpLimits | None = None,
        **settings: Any,
    ) -> None:
        at = connection(bootstrap=cluster) if isinstance(cluster, str) else cluster
        self._settings = Settings(port=0, limits=limits or HttpLimits(), **settings)
        self._connection = at
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.base = ""

    @property
    def door(self) -> Door:
        return self._site.door

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.base.rpartition(":")[2])

    def __enter__(self) -> Served:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        return self

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            self._site = Site(self._connection, self._settings)
            self.base = await self._site.open()
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            self._ready.set()
        await self._stop.wait()
        await self._site.close()

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own; a document becomes JSON."""
        caller = http.client.HTTPConnection(*self.address, timeout=PATIENCE_S)
        sent = dict(headers or {})
        if kind is not None:
            sent["Content-Type"] = kind
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
        try:
            caller.request(method, path, body, sent)
            response = caller.getresponse()
            return Answer(response.status, cast(Any, response.headers), response.read())
        finally:
            caller.close()

    def raw(self, request: bytes) -> bytes:
        """Bytes as they are, and all that comes back until the door closes."""
        import socket

        with socket.create_connection(self.address, timeout=PATIENCE_S) as sock:
            sock.sendall(request)
            received = b""
            while piece := sock.recv(65536):
                received += piece
            return received
