"""OAUTHBEARER (RFC 7628): the client presents a token that a provider has signed.

A token that is not accepted is answered with a few words of JSON, and the client's next token, a
single byte, ends the login, as the RFC requires. The session lasts as long as the token.
`tokens.py` decides whether a token is valid. Extensions are accepted and ignored.
"""

from __future__ import annotations

import re

from headrace.environment import Now
from headrace.node.serving.authentication.exchange import OTHER_IDENTITY, LoginFailed
from headrace.node.serving.authentication.tokens import BadToken, Tokens

NAME = "OAUTHBEARER"
REFUSAL = '{"status":"invalid_token"}'
LONGEST_TOKEN = 64 * 1024
_IDENTITY = r"(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<identity>{_IDENTITY}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([-_~+/.a-zA-Z0-9]+=*)")


class OAuthBearer:
    __slots__ = ("_tokens", "_refused", "user", "ends_wall_ms")

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._refused: str | None = None  # why a token was refused
        self.user: str | None = None
        self.ends_wall_ms: int | None = None

    def step(self, token: bytes, now: Now) -> bytes:
        if self._refused is not None:
            raise LoginFailed(self._refused, told=REFUSAL)
        if len(token) > LONGEST_TOKEN:
            raise LoginFailed(f"an OAUTHBEARER token of {len(token)} bytes")
        found = _FIRST.fullmatch(token.decode("latin-1"))
        if found is None:
            raise LoginFailed("an OAUTHBEARER token that cannot be read")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise LoginFailed("an OAUTHBEARER token without a bearer's")
        try:
            user, ends_wall_ms = self._tokens.check(bearer[1], now)
        except BadToken as fault:
            self._refused = str(fault)
            return REFUSAL.encode()
        identity = found["identity"]
        if identity is not None and identity.replace("=2C", ",").replace("=3D", "=") != user:
            raise LoginFailed("a wish to act for another user", told=f"{OTHER_IDENTITY}.")
        self.user, self.ends_wall_ms = user, ends_wall_ms
        return b""
