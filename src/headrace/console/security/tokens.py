"""A token in every form, so that another site cannot send a form on a user's behalf.

The browser holds a random session in a cookie that scripts cannot read and other sites do not send;
a form holds the MAC of that session under a key that dies with this process. Pure but for chance.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

COOKIE = "headrace-console"  # and the port: browsers share cookies among all ports of a host
_SESSION = re.compile(r"[0-9a-f]{64}")


class Tokens:
    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def token_of(self, session: str) -> str:
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def accepts(self, session: str, token: str) -> bool:
        return hmac.compare_digest(self.token_of(session).encode(), token.encode())


def cookie_name(port: int, *, tls: bool) -> str:
    """Returns the cookie's name. Under TLS it has the prefix for which browsers refuse a cookie
    that another host has set."""
    return f"{'__Host-' if tls else ''}{COOKIE}-{port}"


def new_session() -> str:
    return secrets.token_hex(32)


def is_session(text: str | None) -> bool:
    return text is not None and _SESSION.fullmatch(text) is not None
