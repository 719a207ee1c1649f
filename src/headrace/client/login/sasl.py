"""Chooses the SASL mechanism of a client, and explains refused logins."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from headrace.client.errors import ClientError, LoginRefused
from headrace.wire.protocol import logins
from headrace.wire.protocol.logins import Conversation


def exchange(
    mechanism: str,
    username: str,
    password: str,
    bearer: Callable[[], tuple[str, Mapping[str, str]]],
) -> Conversation:
    """Log in. `bearer` returns a token and its extensions; it is called only for OAUTHBEARER."""
    if mechanism == "PLAIN":
        return logins.plain(username, password)
    if mechanism in logins.HASHES:
        nonce = secrets.token_urlsafe(24)
        return _refused(logins.scram(logins.HASHES[mechanism], username, password, nonce))
    if mechanism == "OAUTHBEARER":
        return _refused(logins.bearer(*bearer()))
    raise ClientError(
        f"This call cannot be made with SASL {mechanism}; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
        "OAUTHBEARER can."
    )


def _refused(conversation: Conversation) -> Conversation:
    try:
        yield from conversation
    except logins.Senseless as fault:
        raise ClientError(str(fault)) from None
    except logins.Distrusted as fault:
        raise LoginRefused(str(fault)) from None
