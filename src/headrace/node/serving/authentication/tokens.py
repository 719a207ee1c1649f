"""Checks a token: signed by a trusted key, for this audience, and still valid (JWT, RFC 7519).

Only signatures that need a private key are accepted: never `none`, and never one by a shared
secret, which everyone who can check it could make (CVE-2026-33557 is about unchecked tokens). The
algorithm must be one that the key is for. A token needs an end and a beginning, and, if they are
configured, the issuer and one of the audiences. The time is an argument.

Does not fetch keys; `keys` returns those that are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from headrace.environment import Now

# The signature algorithms of each kind of key.
ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
# Each costs a check of a signature, for any sender.
MOST_KEYS_TRIED = 4
_SIGNATURE_ONLY: Any = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


class BadToken(Exception):
    """The reason, for the log; without any part of the token."""


class MalformedKeys(ValueError):
    """The error in the keys, as the end of a sentence."""


@dataclass(slots=True, frozen=True)
class Key:
    id: str | None
    algorithms: tuple[str, ...]
    key: Any


@dataclass(slots=True, frozen=True)
class TokenRules:
    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    user_claim: str = "sub"
    skew_ms: int = 30_000


Keys = Callable[[str | None], Sequence[Key]]


class Tokens:
    def __init__(self, keys: Keys, rules: TokenRules) -> None:
        """`keys(id)` returns all keys, and may note that an unknown one is needed."""
        self._keys = keys
        self._rules = rules

    def check(self, token: str, now: Now) -> tuple[str, int]:
        """Returns the user and the end of the token, in wall milliseconds; raises BadToken."""
        claims = self._signed_claims(token)
        rules = self._rules
        ends_ms = _moment(claims, "exp")
        if now.wall_ms >= ends_ms + rules.skew_ms:
            raise BadToken("a token that has expired")
        for name in ("iat", "nbf"):
            if (name == "iat" or name in claims) and (
                _moment(claims, name) - rules.skew_ms > now.wall_ms
            ):
                raise BadToken("a token that does not hold yet")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise BadToken("a token of another issuer")
        if rules.audiences and not set(_audiences(claims)) & set(rules.audiences):
            raise BadToken("a token for another audience")
        user = claims.get(rules.user_claim)
        if not isinstance(user, str) or not user:
            raise BadToken("a token that names no user")
        return user, ends_ms

    def _signed_claims(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise BadToken("a token that cannot be read") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if header.get("crit"):
            raise BadToken("a token with extensions that must be understood")
        fitting = [
            key
            for key in self._keys(key_id)
            if algorithm in key.algorithms and (key_id is None or key.id in (None, key_id))
        ]
        for key in fitting[:MOST_KEYS_TRIED]:
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token, key.key, algorithms=[str(algorithm)], options=_SIGNATURE_ONLY
                )
            except (jwt.InvalidTokenError, RecursionError, ValueError):
                continue
            return claims
        raise BadToken("a token that no known key has signed")


def _moment(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise BadToken(f"a token without a proper {name}")
    return int(value * 1000)


def _audiences(claims: Mapping[str, Any]) -> list[str]:
    found = claims.get("aud")
    values = found if isinstance(found, list) else [found]
    return [value for value in values if isinstance(value, str)]


def read_keys(text: str) -> list[Key]:
    """Reads a JWK set in JSON, or public keys in PEM; keys of other kinds in a set are skipped."""
    keys = _pem_keys(text) if "-----BEGIN" in text else _jwk_keys(text)
    if not keys:
        raise MalformedKeys("has no public key that signs tokens")
    return keys


def _jwk_keys(text: str) -> list[Key]:
    try:
        listed = json.loads(text)["keys"]
        found = [entry for entry in listed if entry.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MalformedKeys("is not a JWK set") from None
    keys = []
    for entry in found:
        try:
            jwk = jwt.PyJWK(entry)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue  # of an unknown kind or curve
        possible = ALGORITHMS.get(str(jwk.key_type), ())
        if entry.get("alg") is not None:
            possible = tuple(name for name in possible if name == entry["alg"])
        if possible:
            keys.append(Key(jwk.key_id, possible, jwk.key))
    return keys


def _pem_keys(text: str) -> list[Key]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    kinds: tuple[tuple[type, str], ...] = (
        (rsa.RSAPublicKey, "RSA"),
        (ec.EllipticCurvePublicKey, "EC"),
        (ed25519.Ed25519PublicKey, "OKP"),
    )
    keys = []
    for block in text.split("-----END PUBLIC KEY-----")[:-1]:
        begin = block.index("-----BEGIN") if "-----BEGIN" in block else 0
        try:
            key = serialization.load_pem_public_key(
                (block[begin:] + "-----END PUBLIC KEY-----\n").encode()
            )
        except ValueError:
            raise MalformedKeys("has a public key that cannot be read") from None
        keys += [Key(None, ALGORITHMS[kind], key) for each, kind in kinds if isinstance(key, each)]
    return keys
