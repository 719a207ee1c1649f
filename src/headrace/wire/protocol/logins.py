"""The caller's side of a login: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628).

Without the network. Each is a conversation: `next` gives the first words, `send` takes the other
side's and gives the next, None ends it. With SCRAM the other side must prove that it knows the
password too, else `Distrusted`. Not done: Kerberos, names that need SASLprep.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator, Mapping
from typing import Any

Conversation = Generator[bytes | None, bytes, None]

# Kafka's own bounds; fewer rounds than RFC 7677 asks for would make the password cheap to guess.
FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Senseless(Exception):
    """The other side does not follow the SASL mechanism."""


class Distrusted(Exception):
    """One side does not trust the other; the message gives the reason."""


def plain(username: str, password: str) -> Conversation:
    yield f"\0{username}\0{password}".encode()
    yield None


def bearer(token: str, extensions: Mapping[str, str]) -> Conversation:
    said = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    refusal = yield f"n,,\x01auth=Bearer {token}\x01{said}\x01".encode()
    if refusal:
        yield b"\x01"  # the broker has sent the reason; this empty message lets it end the login
        words = refusal.decode("utf-8", "replace")
        raise Distrusted(f"The broker does not take the token: {words}.")
    yield None


def scram(hash_name: str, username: str, password: str, nonce: str) -> Conversation:
    name = username.replace("=", "=3D").replace(",", "=2C")
    ours = f"n={name},r={nonce}"
    theirs = (yield f"n,,{ours}".encode()).decode("utf-8", "replace")
    challenge = _fields(theirs)
    salt, rounds = _salt_and_rounds(challenge, nonce)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, rounds)
    bare = f"c=biws,r={challenge['r']}"
    signed = ",".join((ours, theirs, bare)).encode()

    def mac(key: bytes, words: bytes) -> bytes:
        return hmac.new(key, words, hash_name).digest()

    client_key = mac(salted, b"Client Key")
    signature = mac(hashlib.new(hash_name, client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = _fields((yield f"{bare},p={base64.b64encode(proof).decode()}".encode()).decode())
    expected = base64.b64encode(mac(mac(salted, b"Server Key"), signed)).decode()
    if not hmac.compare_digest(final.get("v", ""), expected):
        raise Distrusted(
            "The broker could not prove that it knows the password; is it the right one?"
        )
    yield None


def _fields(words: str) -> dict[str, Any]:
    return dict(word.split("=", 1) for word in words.split(",") if "=" in word)


def _salt_and_rounds(challenge: dict[str, str], nonce: str) -> tuple[bytes, int]:
    rounds = challenge.get("i", "")
    try:
        salt = base64.b64decode(challenge.get("s", ""), validate=True)
    except ValueError:
        salt = b""
    if (
        not salt
        or not challenge.get("r", "").startswith(nonce)
        or not rounds.isdecimal()
        or not FEWEST_ITERATIONS <= int(rounds) <= MOST_ITERATIONS
    ):
        raise Senseless("The broker's part of the login makes no sense.")
    return salt, int(rounds)
