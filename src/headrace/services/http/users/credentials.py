"""The credentials of a request: HTTP's Basic and Bearer as logins of the cluster. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field

from headrace.services.http.refusal import UNAUTHORIZED, Refusal

LONGEST = 8192


@dataclass(slots=True)
class Basic:
    name: str
    password: str = field(repr=False)


@dataclass(slots=True)
class Bearer:
    name: str  # the token's subject: trusted once the cluster has accepted the token
    token: str = field(repr=False)
    expires_s: float | None  # as the token says


Credentials = Basic | Bearer


def read_credentials(header: str | None) -> Credentials:
    """Raises a refusal with 401; the text never repeats what was sent."""
    if header is None:
        raise unauthorized("Log in with a user and a password, or with a token.")
    scheme, _, said = header.strip().partition(" ")
    said = said.strip()
    if len(said) > LONGEST:
        raise unauthorized("The login is too long.")
    if scheme.lower() == "basic":
        return _basic(said)
    if scheme.lower() == "bearer" and said and said.isascii() and said.isprintable():
        return _bearer(said)
    raise unauthorized("Log in by Basic or Bearer.")


def _basic(said: str) -> Basic:
    try:
        name, colon, password = base64.b64decode(said, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        name = colon = password = ""
    if not colon or not name or "\0" in name + password:
        raise unauthorized("The Authorization header cannot be read.")
    return Basic(name, password)


def _bearer(token: str) -> Bearer:
    """Reads a token. Its claims are trusted once the cluster has checked the signature. A token
    without a user name is refused: all clients with such tokens would be one user here, and own
    each other's instances and keys."""
    claims: object = None
    parts = token.split(".")
    if len(parts) == 3:
        try:
            padded = parts[1] + "=" * (-len(parts[1]) % 4)
            claims = json.loads(base64.urlsafe_b64decode(padded))
        except (binascii.Error, ValueError, RecursionError):
            claims = None
    found = claims if isinstance(claims, dict) else {}
    name, expires = found.get("sub"), found.get("exp")
    if not isinstance(name, str) or not name or "\0" in name:
        raise unauthorized("The token has no claim 'sub', which identifies the user.")
    return Bearer(name, token, float(expires) if isinstance(expires, int | float) else None)


def unauthorized(message: str) -> Refusal:
    return Refusal(401, message, code=UNAUTHORIZED)
