"""How this node speaks to a listener of other nodes: TLS, a login, both or neither.

`security.py` reads the settings of secured listeners; it is loaded only if a listener needs it. Not
done: OAUTHBEARER between nodes.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping
from socket import socket
from typing import Protocol

from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.process.peers.peer_streams import PlainStream, Stream, TlsStream
from headrace.wire.protocol import logins
from headrace.wire.protocol.logins import Conversation

Login = tuple[str, Conversation]  # the SASL mechanism, and its messages


class PeerSecurity(Protocol):
    def stream(self, sock: socket, host: str) -> Stream: ...

    def login(self) -> Login | None:
        """None: the listener asks for none."""
        ...


class Plain:
    """A listener that asks for nothing."""

    def stream(self, sock: socket, host: str) -> Stream:
        return PlainStream(sock)

    def login(self) -> Login | None:
        return None


PLAIN = Plain()


class Secured:
    """Connections with TLS, a login or both. `tls` None: the bytes are not encrypted. `begin` None:
    there is no login."""

    def __init__(self, tls: ssl.SSLContext | None, begin: Callable[[], Login] | None) -> None:
        self._tls = tls
        self._begin = begin

    def stream(self, sock: socket, host: str) -> Stream:
        return PlainStream(sock) if self._tls is None else TlsStream(sock, self._tls, host)

    def login(self) -> Login | None:
        return None if self._begin is None else self._begin()


def login_of(mechanism: str, options: Mapping[str, str]) -> Callable[[], Login]:
    """Returns the login from the options of a `sasl.jaas.config`."""
    name, password = options.get("username"), options.get("password")
    if not name or password is None:
        raise BadValue(
            f"Nodes log in to each other by {mechanism}: its sasl.jaas.config needs "
            'username="NAME" and password="PASSWORD".'
        )
    if mechanism == "PLAIN":
        return lambda: (mechanism, logins.plain(name, password))
    if mechanism not in logins.HASHES:
        raise BadValue(
            f"Nodes cannot log in to each other by {mechanism}: use PLAIN, "
            f"{' or '.join(logins.HASHES)}."
        )
    hash_name = logins.HASHES[mechanism]
    return lambda: (
        mechanism,
        logins.scram(hash_name, name, password, secrets.token_urlsafe(24)),
    )
