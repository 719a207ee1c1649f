"""The caller's side of a login, with the RFC's own example and a broker that lies."""

from __future__ import annotations

import pytest

from headrace.wire.protocol.logins import Distrusted, Senseless, bearer, plain, scram

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_example_of_the_rfc() -> None:
    login = scram("sha256", "user", "pencil", NONCE)
    assert next(login) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert login.send(CHALLENGE) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert login.send(VERDICT) is None


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    login = scram("sha256", "user", "pencil", NONCE)
    next(login)
    login.send(CHALLENGE)
    with pytest.raises(Distrusted, match="could not prove"):
        login.send(b"v=AAAA")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"4096", b"1"),
        CHALLENGE.replace(b"4096", b"4000000000"),
        CHALLENGE.replace(b"s=W22", b"s=!!!"),
        b"\xff\xfe",
        b"",
    ],
)
def test_a_senseless_challenge_is_refused(challenge: bytes) -> None:
    login = scram("sha256", "user", "pencil", NONCE)
    next(login)
    with pytest.raises(Senseless, match="makes no sense"):
        login.send(challenge)


def test_names_are_escaped_and_plain_is_plain() -> None:
    assert next(scram("sha512", "a=b,c", "x", "n")) == b"n,,n=a=3Db=2Cc,r=n"
    login = plain("user", "pencil")
    assert next(login) == b"\0user\0pencil"
    assert login.send(b"") is None


def test_a_token_is_shown_and_a_refusal_is_read_to_its_end() -> None:
    """RFC 7628, section 3: the broker explains in JSON, and ends it when that was read."""
    login = bearer("abc", {"tenant": "7"})
    assert next(login) == b"n,,\x01auth=Bearer abc\x01tenant=7\x01\x01"
    assert login.send(b"") is None
    login = bearer("abc", {})
    assert next(login) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert login.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(Distrusted, match="does not take the token: .*invalid_token"):
        login.send(b"")
