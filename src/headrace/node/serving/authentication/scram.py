"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), the server's side.

The server keeps a salt, a stored key and a server key, never the password. An unknown user gets a
challenge too, with a salt that is always the same for this name, and fails at the proof as a wrong
password does: so a client cannot find out which users exist. The nonce must come back whole
(CVE-2024-56128), proofs are compared in constant time (CVE-2021-38153).

Names are ASCII, as in Apache Kafka. Not done: channel binding, delegation tokens (the extension
`tokenauth`), mandatory extensions; a client that asks for them is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.environment import Now
from headrace.node.serving.authentication.exchange import OTHER_IDENTITY, LoginFailed

# By the numbers of Kafka's records and requests.
SHA_256, SHA_512 = 1, 2
MECHANISMS = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}
HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
TYPES = {name: number for number, name in MECHANISMS.items()}

FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 16_384
NONCE_BYTES = 24
# The iterations shown for unknown users; the default of Apache's tool and of ours.
USUAL_ITERATIONS = 4096
USUAL_SALT_BYTES = 24

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<identity>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_LAST = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
# Far more than names and nonces need; a longer token is not parsed.
LONGEST_TOKEN = 16 * 1024


@dataclass(slots=True)
class Credential:
    """The stored form of one user's password for one mechanism."""

    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


# (user, type of the mechanism) -> the stored credential
Lookup = Callable[[str, int], Credential | None]


def keys_of(kind: int, salted_password: bytes) -> tuple[bytes, bytes]:
    """Returns the stored key and the server key."""
    name = HASHES[kind]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name)


def credential_of(kind: int, password: str, *, salt: bytes, iterations: int) -> Credential:
    salted = hashlib.pbkdf2_hmac(HASHES[kind], password.encode(), salt, iterations)
    stored_key, server_key = keys_of(kind, salted)
    return Credential(salt, stored_key, server_key, iterations)


class Scram:
    __slots__ = (
        "_kind",
        "_lookup",
        "_secret",
        "_server_nonce",
        "_credential",
        "_known",
        "_name",
        "_header",
        "_nonce",
        "_said",
        "user",
        "ends_wall_ms",
    )

    def __init__(self, kind: int, lookup: Lookup, *, server_nonce: str, secret: bytes) -> None:
        """`secret` makes the salts of unknown users; it must outlive a restart."""
        self._kind = kind
        self._lookup = lookup
        self._secret = secret
        self._server_nonce = server_nonce
        self._credential: Credential | None = None
        self._known = False
        self._name = ""
        self._header = ""
        self._nonce = ""
        self._said = ""  # the first two messages, as they are signed
        self.user: str | None = None
        self.ends_wall_ms: int | None = None

    def step(self, token: bytes, now: Now) -> bytes:
        if len(token) > LONGEST_TOKEN:
            raise LoginFailed(f"a SCRAM token of {len(token)} bytes")
        text = token.decode("latin-1")  # text that is not ASCII matches no pattern
        return self._first(text) if self._credential is None else self._last(text)

    def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise LoginFailed("a first SCRAM token that cannot be read")
        if ",tokenauth=" in found["extensions"]:
            raise LoginFailed("a delegation token, which is not supported")
        name = _unescaped(found["name"])
        credential = self._lookup(name, self._kind)
        self._known = credential is not None and credential.iterations >= FEWEST_ITERATIONS
        if credential is None or not self._known:
            credential = self._made_up(name)
        if found["identity"] is not None and _unescaped(found["identity"]) != name:
            raise LoginFailed("a wish to act for another user", told=f"{OTHER_IDENTITY}.")
        self._credential, self._name = credential, name
        self._header = found["header"]
        self._nonce = found["nonce"] + self._server_nonce
        salt = base64.b64encode(credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._said = f"{found['bare']},{challenge}"
        return challenge.encode()

    def _last(self, text: str) -> bytes:
        credential = self._credential
        assert credential is not None
        found = _LAST.fullmatch(text)
        if found is None:
            raise LoginFailed("a last SCRAM token that cannot be read")
        if found["nonce"] != self._nonce:
            raise LoginFailed("a last SCRAM token with another nonce")
        if base64.b64decode(found["binding"]) != self._header.encode():
            raise LoginFailed("a last SCRAM token with another header")
        hash_name = HASHES[self._kind]
        signed = f"{self._said},{found['bare']}".encode()
        signature = hmac.digest(credential.stored_key, signed, hash_name)
        proof = base64.b64decode(found["proof"])
        if len(proof) != len(signature):
            raise LoginFailed("a SCRAM proof of the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        shown = hashlib.new(hash_name, client_key).digest()
        right = hmac.compare_digest(shown, credential.stored_key)
        if not (right and self._known):
            raise LoginFailed("wrong name or password")
        self.user = self._name
        proof_of_ours = hmac.digest(credential.server_key, signed, hash_name)
        return b"v=" + base64.b64encode(proof_of_ours)

    def _made_up(self, name: str) -> Credential:
        def bytes_for(what: str) -> bytes:
            words = f"{what} {self._kind} {name}".encode()
            return hmac.digest(self._secret, words, HASHES[self._kind])

        salt = bytes_for("salt")[:USUAL_SALT_BYTES]
        return Credential(salt, bytes_for("stored"), bytes_for("server"), USUAL_ITERATIONS)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
