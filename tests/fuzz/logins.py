"""Logins of a client that is almost right: its tokens are changed on their way.

`dialogue(data)` reads from an input which mechanism is tried, with which version of the requests,
whether the secret is the right one, and a few edits of a few bytes. Each step sends what a proper
client would send after the answer it got, with the edits of that step. With a wrong secret nobody
may get in, whatever the edits are; and whoever gets in is the user whose secret it was.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headrace.node.serving.authentication.login import Login
from headrace.node.serving.authentication.mechanisms import Logins, Mechanisms
from headrace.node.serving.authentication.oauthbearer import OAuthBearer
from headrace.node.serving.authentication.plain import Plain
from headrace.node.serving.authentication.scram import (
    HASHES,
    SHA_256,
    SHA_512,
    Credential,
    Scram,
    credential_of,
)
from headrace.node.serving.authentication.tokens import ALGORITHMS, Key, TokenRules, Tokens
from headrace.node.serving.session import Session
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import metadata, sasl_authenticate, sasl_handshake

USER, PASSWORD = "ann", "secret"
WRONG = "this is not the secret, nor near to it"
SALT, ITERATIONS = b"salt", 4096
NAMES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
KINDS = {"SCRAM-SHA-256": SHA_256, "SCRAM-SHA-512": SHA_512}
_CREDENTIALS = {
    kind: credential_of(kind, PASSWORD, salt=SALT, iterations=ITERATIONS)
    for kind in (SHA_256, SHA_512)
}
_SIGNER = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
_STRANGER = Ed25519PrivateKey.from_private_bytes(b"2" * 32)
_KEYS = [Key("k", ALGORITHMS["OKP"], _SIGNER.public_key())]
# Longer than any time that passes while inputs are run.
_CLAIMS = {"sub": USER, "iat": 1_600_000_000, "exp": 900_000_000_000}

MOST_STEPS = 3
WRONG_SECRET, BARE_TOKENS = 0x80, 0x40
EDIT_BYTES = 5


@cache
def _salted(name: str, password: str) -> bytes:
    return hashlib.pbkdf2_hmac(name, password.encode(), SALT, ITERATIONS)


def _lookup(user: str, kind: int) -> Credential | None:
    return _CREDENTIALS[kind] if user == USER else None


def _scram(kind: int) -> Callable[[], Scram]:
    return lambda: Scram(kind, _lookup, server_nonce="nonce", secret=b"secret of unknown salts")


def must_log_in(session: Session) -> None:
    """A session on a listener with SASL, whose secrets the seeds know."""
    tokens = Tokens(lambda key_id: _KEYS, TokenRules())
    session.login = Login(
        Mechanisms(
            {
                "PLAIN": lambda: Plain({USER: PASSWORD}),
                "SCRAM-SHA-256": _scram(SHA_256),
                "SCRAM-SHA-512": _scram(SHA_512),
                "OAUTHBEARER": lambda: OAuthBearer(tokens),
            },
            Logins(),
        )
    )


@dataclass(slots=True)
class Dialogue:
    """What an input of the variant `login` asks for."""

    mechanism: str
    secret_is_right: bool
    bare: bool
    version: int
    edits: list[tuple[int, int, int, int]]  # step, kind of edit, where, byte

    def changed(self, step: int, token: bytes) -> bytes:
        out = bytearray(token)
        for at_step, kind, place, byte in self.edits:
            if at_step != step or not out:
                continue
            at = place % len(out)
            if kind == 0:
                out[at] = byte
            elif kind == 1:
                out.insert(at, byte)
            elif kind == 2:
                del out[at : at + 1 + byte % 8]
            elif kind == 3:
                out[at:at] = out[at : at + 1 + byte]
            elif kind == 4:
                out[at:at] = bytes([byte]) * (place % 4096)
            else:
                out[at] ^= 1 << byte % 8
        return bytes(out)


def dialogue(data: bytes) -> Dialogue:
    choice = data[0] if data else 0
    edits = []
    for at in range(1, min(len(data), 1 + 16 * EDIT_BYTES) - EDIT_BYTES + 1, EDIT_BYTES):
        step, kind, high, low, byte = data[at : at + EDIT_BYTES]
        edits.append((step % MOST_STEPS, kind % 6, high << 8 | low, byte))
    return Dialogue(
        NAMES[(choice & 0x3F) % len(NAMES)],
        not choice & WRONG_SECRET,
        bool(choice & BARE_TOKENS),
        (choice & 0x3F) // len(NAMES) % 3,
        edits,
    )


class Client:
    """What a proper client says, given what it has heard."""

    def __init__(self, wanted: Dialogue) -> None:
        self._mechanism = wanted.mechanism
        self._right = wanted.secret_is_right
        self._password = PASSWORD if wanted.secret_is_right else WRONG

    def tokens(self) -> Iterator[bytes]:
        """One after the other; the answer to each is given by `heard`."""
        if self._mechanism in KINDS:
            yield from self._scram(KINDS[self._mechanism])
        elif self._mechanism == "OAUTHBEARER":
            signer = _SIGNER if self._right else _STRANGER
            token = jwt.encode(_CLAIMS, signer, "EdDSA", headers={"kid": "k"})
            yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
            yield b"\x01"
        else:
            yield b"\0".join((b"", USER.encode(), self._password.encode()))

    heard = b""

    def _scram(self, kind: int) -> Iterator[bytes]:
        first = f"n={USER},r=mine"
        yield f"n,,{first}".encode()
        challenge = self.heard.decode("latin-1")
        nonce = challenge.partition(",")[0].removeprefix("r=")
        name = HASHES[kind]
        salted = _salted(name, self._password)
        client_key = hmac.digest(salted, b"Client Key", name)
        without = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        said = f"{first},{challenge},{without}".encode("latin-1")
        signature = hmac.digest(hashlib.new(name, client_key).digest(), said, name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        yield f"{without},p={base64.b64encode(proof).decode()}".encode("latin-1")


def frames_of(messages: object, version: int, request: object) -> bytes:
    pieces = encode_request(messages, version, 1, "fuzz", request)
    return b"".join(bytes(piece) for piece in pieces)


def speak(wanted: Dialogue, send: Callable[[bytes], bytes]) -> None:
    """`send` gives bytes to the node and answers what came back, without the answer's length."""
    request = sasl_handshake.SaslHandshakeRequest(wanted.mechanism)
    send(frames_of(sasl_handshake, 0 if wanted.bare else 1, request))
    client = Client(wanted)
    for step, token in enumerate(client.tokens()):
        changed = wanted.changed(step, token)
        if wanted.bare:
            client.heard = send(len(changed).to_bytes(4, "big") + changed)
            continue
        asked = sasl_authenticate.SaslAuthenticateRequest(changed)
        said = send(frames_of(sasl_authenticate, wanted.version, asked))
        try:
            answer = decode_response(sasl_authenticate, wanted.version, memoryview(said))[1]
        except MalformedMessage:
            return  # there was none
        client.heard = answer.auth_bytes
    send(frames_of(metadata, 1, metadata.MetadataRequest(None)))


def plain_login() -> list[bytes]:
    """The frames of a login that succeeds."""
    token = b"\0".join((b"", USER.encode(), PASSWORD.encode()))
    return [
        frames_of(sasl_handshake, 1, sasl_handshake.SaslHandshakeRequest("PLAIN")),
        frames_of(sasl_authenticate, 1, sasl_authenticate.SaslAuthenticateRequest(token)),
    ]


def login_seeds() -> Iterator[bytes]:
    """Every mechanism and way, unchanged and with a change in each step."""
    for choice in range(3 * len(NAMES)):
        for more in (0, BARE_TOKENS, WRONG_SECRET):
            yield bytes([choice | more])
            for step in range(2):
                yield bytes([choice | more, step, 5, 0, 10, step])
