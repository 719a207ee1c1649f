"""SCRAM, the server's side: the RFC's example, our own client, and those who cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from headrace.environment import Now
from headrace.node.serving.authentication.exchange import LoginFailed
from headrace.node.serving.authentication.scram import (
    SHA_256,
    SHA_512,
    Credential,
    Scram,
    credential_of,
)
from headrace.wire.protocol.logins import scram as client

NOW = Now(0, 0)
# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
LAST = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def server(
    users: dict[str, Credential], kind: int = SHA_256, *, secret: bytes = b"secret"
) -> Scram:
    return Scram(kind, lambda user, _: users.get(user), server_nonce=SERVER_NONCE, secret=secret)


def the_user(iterations: int = 4096) -> dict[str, Credential]:
    return {"user": credential_of(SHA_256, "pencil", salt=SALT, iterations=iterations)}


def test_the_example_of_the_rfc() -> None:
    exchange = server(the_user())
    assert exchange.step(FIRST, NOW) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.user is None
    assert exchange.step(LAST, NOW) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.user == "user"


@pytest.mark.parametrize("kind", [SHA_256, SHA_512])
@pytest.mark.parametrize("name", ["alice", "a=b,c", "with space"])
def test_our_own_client_logs_in(kind: int, name: str) -> None:
    users = {name: credential_of(kind, "pässword", salt=b"salt", iterations=4096)}
    exchange = server(users, kind)
    speaks = client({SHA_256: "sha256", SHA_512: "sha512"}[kind], name, "pässword", "nonce")
    token = next(speaks)
    while token is not None:
        token = speaks.send(exchange.step(token, NOW))
    assert exchange.user == name


def failing(*tokens: bytes, users: dict[str, Credential] | None = None) -> LoginFailed:
    exchange = server(the_user() if users is None else users)
    *before, last = tokens
    for token in before:
        exchange.step(token, NOW)
    with pytest.raises(LoginFailed) as failure:
        exchange.step(last, NOW)
    assert exchange.user is None
    return failure.value


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xfe",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=must,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,a=admin,n=user,r=abc",
        b"n,,n=user,r=" + b"x" * 20_000,
        "n,,n=jürgen,r=abc".encode(),
    ],
)
def test_a_first_token_that_is_refused(first: bytes) -> None:
    failing(first)


@pytest.mark.parametrize(
    ("change", "to"),
    [
        (b"c=biws", b"c=eSws"),  # another header than the first token had
        (b"r=rOprNGfwEbeRWgbNEkqO%", b"r=rOprNGfwEbeRWgbNEkqO"),
        (b"p=dHzb", b"p=dHzc"),
        (b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b",p="),
        (b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b",p=AAAA"),
        (b",p=", b",q="),
        (LAST, b""),
    ],
)
def test_a_last_token_that_is_refused(change: bytes, to: bytes) -> None:
    assert change in LAST
    failing(FIRST, LAST.replace(change, to))


def test_the_nonce_must_come_back_whole() -> None:
    """CVE-2024-56128: the server's part of it was not compared."""
    failure = failing(FIRST, LAST.replace(SERVER_NONCE.encode(), b"x" * len(SERVER_NONCE)))
    assert "nonce" in str(failure)


def test_a_user_who_is_not_there_is_told_the_same_as_one_with_another_password() -> None:
    """Who asks gets a challenge, always the same for a name, and fails at the proof."""
    exchange = server({})
    challenge = exchange.step(FIRST, NOW)
    assert challenge == server({}).step(FIRST, NOW), "also after a restart"
    assert challenge != server({}, secret=b"of another node").step(FIRST, NOW)
    assert challenge.split(b",s=")[0] == b"r=rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE.encode()
    assert b",i=4096" in challenge
    unknown = failing(FIRST, LAST, users={})
    wrong = failing(FIRST, LAST.replace(b"p=dHzb", b"p=dHzc"))
    assert (str(unknown), unknown.told) == (str(wrong), wrong.told)


def test_a_made_up_key_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for who knows the password that it would be of."""
    monkeypatch.setattr(Scram, "_made_up", lambda self, name: the_user()["user"])
    failing(FIRST, LAST, users={})


def test_the_header_must_come_back_though_the_proof_is_right() -> None:
    """RFC 5802: a client that could bind to the channel notices that somebody took that away."""
    exchange = server(the_user())
    challenge = exchange.step(FIRST, NOW)
    bare = b"c=eSws,r=rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE.encode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = b",".join((FIRST.removeprefix(b"n,,"), challenge, bare))
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    with pytest.raises(LoginFailed, match="another header"):
        exchange.step(bare + b",p=" + base64.b64encode(proof), NOW)


def test_a_credential_with_too_few_iterations_is_not_taken() -> None:
    failing(FIRST, LAST, users=the_user(iterations=1000))
