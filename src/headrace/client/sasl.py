"""The client's side of a login: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628).

Without the network. `exchange` is a conversation: `next` gives the first words, `send` takes the
broker's and gives the next, None ends it. With SCRAM the broker must prove that it knows the
password too, else `LoginRefused`. Not done: Kerberos (librdkafka has it), names that need SASLprep.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator, Mapping
from typing import Any

from headrace.client.errors import ClientError, LoginRefused

Exchange = Generator[bytes | None, bytes, None]

# Kafka's own bounds; fewer rounds than RFC 7677 asks for would make the password cheap to guess.
FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def exchange(
    mechanism: str,
    username: str,
    password: str,
    bearer: Callable[[], tuple[str, Mapping[str, str]]],
) -> Exchange:
    """`bearer` gives a token and its extensions, when it comes to that."""
    if mechanism == "PLAIN":
        return _plain(username, password)
    if mechanism in _HASHES:
        return scram(_HASHES[mechanism], username, password, secrets.token_urlsafe(24))
    if mechanism == "OAUTHBEARER":
        return _bearer(*bearer())
    raise ClientError(
        f"This call cannot be made with SASL {mechanism}; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
        "OAUTHBEARER can."
    )


def _plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()
    yield None


def _bearer(token: str, extensions: Mapping[str, str]) -> Exchange:
    said = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    refusal = yield f"n,,\x01auth=Bearer {token}\x01{said}\x01".encode()
    if refusal:
        yield b"\x01"  # the broker has said why, and ends it when it hears that we have read it
        words = refusal.decode("utf-8", "replace")
        raise LoginRefused(f"The broker does not take the token: {words}.")
    yield None


def scram(hash_name: str, username: str, password: str, nonce: str) -> Exchange:
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
        raise LoginRefused(
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
        raise ClientError("The broker's part of the login makes no sense.")
    return salt, int(rounds)
