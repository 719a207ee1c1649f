"""An HTTP endpoint as a target: one POST per call, as CloudEvents, signed if a secret is given.

The answer: 2xx means done; a JSON body `{"failed": [{"id": ..., "reason": ...}]}` (or plain ids)
names the records of a batch that failed. An answer that begins as a JSON object and cannot be read
to its end may name any of them, so none counts as done and the call is tried again. 408, 425, 429,
5xx, a broken connection and a time-out may be tried again, and `Retry-After` is respected; a retry
does not help with any other status.

The address is in the operator's file, but a name can change its address: we look each name up,
addresses that are private, loopback, link-local or reserved are refused unless the host is in
`allow_hosts`, and the connection goes to the address that was checked. Redirects are not followed:
they would bypass that check.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from headrace.app.triggers import cloud_events
from headrace.app.triggers.cloud_events import Event, Request
from headrace.app.triggers.targets import Failure, TargetFailed

# The longest answer with failed records that is read to its end.
LONGEST_ANSWER = 1_048_576
LONGEST_BEGINNING = 64  # read to see whether it is a JSON object
LONGEST_REASON = 500
LONGEST_RETRY_AFTER_MS = 3_600_000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RETRIABLE_STATUS = frozenset({408, 425, 429})


class HostRefused(OSError):
    """The host leads to an address that is not public, and is not in `allow_hosts`."""


class HttpTarget:
    def __init__(
        self,
        url: str,
        *,
        mode: str = "binary",
        secret: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 30,
        allow_hosts: Sequence[str] = (),
        connections: int = 64,
        now_s: Callable[[], int],
    ) -> None:
        self._url = checked_url(url, allow_hosts)
        self._structured = mode == "structured"
        self._secret = secret
        self._headers = {
            name: cloud_events.header_value(text) for name, text in (headers or {}).items()
        }
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._allow_hosts = frozenset(host.lower() for host in allow_hosts)
        self._connections = connections
        self._now_s = now_s
        self._session: aiohttp.ClientSession | None = None

    async def call(self, events: list[Event]) -> list[Failure]:
        request = self._request(events)
        try:
            async with self._opened().post(
                self._url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
            ) as response:
                _require_success(response.status, response.headers.get("retry-after"))
                return failures_in(await _read_answer(response.content))
        except TimeoutError:
            raise TargetFailed("no answer in time", retriable=True, target_is_down=True) from None
        except HostRefused as refusal:
            raise TargetFailed(str(refusal), retriable=False) from None
        except aiohttp.ClientError as problem:
            if isinstance(problem.__cause__, HostRefused):
                raise TargetFailed(str(problem.__cause__), retriable=False) from None
            raise TargetFailed(
                f"cannot reach the endpoint: {problem}", retriable=True, target_is_down=True
            ) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _request(self, events: list[Event]) -> Request:
        if len(events) > 1:
            request = cloud_events.batch(events)
        elif self._structured:
            request = cloud_events.structured(events[0])
        else:
            request = cloud_events.binary(events[0])
        request.headers |= self._headers
        if self._secret is not None:
            cloud_events.sign(request, self._secret, self._now_s())
        return request

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections, resolver=CheckedResolver(self._allow_hosts)
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                trust_env=False,  # a proxy from the environment would bypass the check
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def checked_url(url: str, allow_hosts: Sequence[str]) -> str:
    """The URL if it may be called; a host given as an IP address is checked here."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an http or https address")
    if parts.username is not None or parts.password is not None:
        raise ValueError("put credentials into a header of the trigger, not into its address")
    allowed = frozenset(host.lower() for host in allow_hosts)
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return url
    if not address_may_be_called(str(address)) and parts.hostname.lower() not in allowed:
        raise ValueError(_refusal(parts.hostname, str(address)))
    return url


def address_may_be_called(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.is_global and not parsed.is_multicast


def _refusal(host: str, address: str) -> str:
    return f"{host} is {address}, not a public address; add it to allow_hosts if that is meant"


class CheckedResolver(AbstractResolver):
    """Looks names up and returns only addresses that may be called."""

    def __init__(self, allow_hosts: frozenset[str]) -> None:
        self._names = aiohttp.ThreadedResolver()
        self._allow_hosts = allow_hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._names.resolve(host, port, family)
        if host.lower() in self._allow_hosts:
            return found
        allowed = [each for each in found if address_may_be_called(each["host"])]
        if not allowed:
            raise HostRefused(_refusal(host, found[0]["host"]))
        return allowed

    async def close(self) -> None:
        await self._names.close()


async def _read_answer(content: aiohttp.StreamReader) -> bytes:
    """The whole body if it may be a JSON object, in however many pieces it comes; at most a little
    more than LONGEST_ANSWER. Only the beginning of any other body."""
    body = bytearray()
    while len(body) <= LONGEST_ANSWER and (piece := await content.readany()):
        body += piece
        begun = _json_text(bytes(body[:LONGEST_BEGINNING]))
        if begun and not begun.startswith(b"{"):
            break
    return bytes(body)


def _require_success(status: int, retry_after: str | None) -> None:
    if 200 <= status < 300:
        return
    reason = f"the endpoint answered {status}"
    if status < 200 or status >= 500 or status in RETRIABLE_STATUS:
        pause_ms = _retry_after_ms(retry_after)
        raise TargetFailed(reason, retriable=True, target_is_down=True, retry_after_ms=pause_ms)
    if 300 <= status < 400:
        reason += "; redirects are not followed, give the trigger the final address"
    raise TargetFailed(reason, retriable=False)


def _retry_after_ms(text: str | None) -> int:
    """Seconds as a number; the form with a date is rare and ignored."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 9:
        return 0
    return min(int(text) * 1000, LONGEST_RETRY_AFTER_MS)


def failures_in(body: bytes) -> list[Failure]:
    """The failed records in an answer; text and lists have none.

    Raises TargetFailed for a JSON object that is cut off, too long, or whose `failed` is not a list
    of ids: the failed records are then unknown.
    """
    text = _json_text(body)
    if not text.startswith(b"{"):
        return []
    if len(body) > LONGEST_ANSWER:
        raise _unreadable(f"it is longer than {LONGEST_ANSWER} bytes")
    try:
        failed = json.loads(text).get("failed")
    except (ValueError, RecursionError) as fault:
        raise _unreadable(f"it is not JSON: {type(fault).__name__}") from None
    if not failed:  # nothing, or a count of zero
        return []
    if not isinstance(failed, list):
        raise _unreadable("`failed` is not a list of ids")
    return [_failure(each) for each in failed]


def _json_text(body: bytes) -> bytes:
    return body.removeprefix(BYTE_ORDER_MARK).lstrip()


def _unreadable(why: str) -> TargetFailed:
    return TargetFailed(f"the endpoint's answer cannot be read: {why}", retriable=True)


def _failure(entry: Any) -> Failure:
    if isinstance(entry, str):
        return Failure(entry, "named by the endpoint")
    if isinstance(entry, dict) and isinstance(entry.get("id"), str):
        return Failure(entry["id"], str(entry.get("reason", ""))[:LONGEST_REASON])
    raise _unreadable(f"{repr(entry)[:40]} in `failed` is not the id of a record")
