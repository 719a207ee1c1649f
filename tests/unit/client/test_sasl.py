"""Which login a client makes, and how it says that one was refused."""

from __future__ import annotations

import pytest

from headrace.client.errors import ClientError, LoginRefused
from headrace.client.login.sasl import exchange


def no_token() -> tuple[str, dict[str, str]]:
    raise AssertionError("this login needs none")


def test_each_mechanism_begins_in_its_own_way() -> None:
    assert next(exchange("PLAIN", "user", "pencil", no_token)) == b"\0user\0pencil"
    assert (next(exchange("SCRAM-SHA-256", "user", "pencil", no_token)) or b"")[
        :10
    ] == b"n,,n=user,"
    token = exchange("OAUTHBEARER", "", "", lambda: ("abc", {}))
    assert next(token) == b"n,,\x01auth=Bearer abc\x01\x01"
    with pytest.raises(ClientError, match="cannot be made with SASL GSSAPI"):
        exchange("GSSAPI", "", "", no_token)


def test_what_goes_wrong_is_told_as_a_clients_error() -> None:
    login = exchange("SCRAM-SHA-256", "user", "pencil", no_token)
    next(login)
    with pytest.raises(ClientError, match="makes no sense"):
        login.send(b"")
    login = exchange("OAUTHBEARER", "", "", lambda: ("abc", {}))
    next(login)
    login.send(b"no")
    with pytest.raises(LoginRefused, match="does not take the token: no"):
        login.send(b"")
