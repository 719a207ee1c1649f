"""PLAIN (RFC 4616): name and password in the clear, so only for listeners with TLS or on loopback.

The passwords are those of the operator's JAAS line. Every comparison takes the same time whether
the name is known or not, and a client can act only as itself (CVE-2017-12610).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from headrace.environment import Now
from headrace.node.serving.authentication.exchange import OTHER_IDENTITY, LoginFailed

NAME = "PLAIN"
# Compared with if the name is unknown; NUL cannot be part of a password that a client sends.
_NOBODYS = b"\0"


class Plain:
    __slots__ = ("_passwords", "user", "ends_wall_ms")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None
        self.ends_wall_ms: int | None = None

    def step(self, token: bytes, now: Now) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise LoginFailed("a PLAIN token that is not made of three parts")
        identity, name, password = parts
        if not name or not password:
            raise LoginFailed("a PLAIN token without name or password")
        user = name.decode("utf-8", "replace")
        known = self._passwords.get(user)
        expected = _NOBODYS if known is None else known.encode()
        # The digests have one length, so the time reveals nothing about the password's length.
        if not hmac.compare_digest(_digest(expected), _digest(password)):
            raise LoginFailed(
                "wrong name or password", told="Authentication failed: Invalid username or password"
            )
        if identity not in (b"", name):
            raise LoginFailed("a wish to act for another user", told=f"{OTHER_IDENTITY}.")
        self.user = user
        return b""


def _digest(text: bytes) -> bytes:
    return hmac.digest(b"headrace", text, "sha256")
