"""PLAIN, the server's side."""

from __future__ import annotations

import pytest

from headrace.environment import Now
from headrace.node.serving.authentication.exchange import LoginFailed
from headrace.node.serving.authentication.plain import Plain

NOW = Now(0, 0)
USERS = {"alice": "wonder", "jürgen": "größe"}


def login(token: bytes) -> Plain:
    exchange = Plain(USERS)
    assert exchange.step(token, NOW) == b""
    return exchange


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0wonder", "alice"),
        (b"alice\0alice\0wonder", "alice"),
        ("\0jürgen\0größe".encode(), "jürgen"),
    ],
)
def test_the_right_password_names_the_user(token: bytes, user: str) -> None:
    assert login(token).user == user


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0alice\0wonder2",
        b"\0nobody\0wonder",
        b"\0nobody\0\0",
        b"\0alice\0",
        b"\0\0wonder",
        b"alice\0wonder",
        b"\0alice\0wonder\0more",
        b"",
        b"\0\xff\xfe\0wonder",
    ],
)
def test_everything_else_is_refused(token: bytes) -> None:
    exchange = Plain(USERS)
    with pytest.raises(LoginFailed) as failure:
        exchange.step(token, NOW)
    assert exchange.user is None
    assert "wonder" not in f"{failure.value} {failure.value.told}"


def test_nobody_acts_for_another_user() -> None:
    """CVE-2017-12610: the first part of the token was believed."""
    with pytest.raises(LoginFailed, match="act for another"):
        login(b"admin\0alice\0wonder")
