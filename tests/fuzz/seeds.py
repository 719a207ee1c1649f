"""Where a fuzzer begins: frames that real clients have sent, and one of each API and version.

`captures.txt` was recorded by `python -m tests.fuzz.capture` from librdkafka and Apache Kafka's
Java tools: API, version and the bytes of one frame per line.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from headrace.node import Node
from headrace.protocol.framing import encode_request
from headrace.serving.authentication.login import Login
from headrace.serving.authentication.mechanisms import Logins, Mechanisms
from headrace.serving.authentication.plain import Plain
from headrace.serving.authentication.scram import SHA_256, Credential, Scram, credential_of
from headrace.serving.dispatch import Route
from headrace.serving.session import Session
from tests.fuzz.target import unframed

CAPTURES = Path(__file__).with_name("captures.txt")
USER, PASSWORD = "ann", "secret"
_CREDENTIAL = credential_of(SHA_256, PASSWORD, salt=b"salt", iterations=4096)

BEFORE_LOGIN, AFTER_LOGIN, RAW = 1, 0, 2


def must_log_in(node: Node, session: Session) -> None:
    """A session on a listener with SASL, whose passwords the seeds know."""

    def lookup(user: str, kind: int) -> Credential | None:
        return _CREDENTIAL if user == USER else None

    session.login = Login(
        Mechanisms(
            {
                "PLAIN": lambda: Plain({USER: PASSWORD}),
                "SCRAM-SHA-256": lambda: Scram(
                    SHA_256, lookup, server_nonce="nonce", secret=b"secret"
                ),
            },
            Logins(),
        )
    )


def captured() -> list[bytes]:
    """Frames with their length in front."""
    frames = []
    for line in CAPTURES.read_text().splitlines():
        if line and not line.startswith("#"):
            payload = base64.b64decode(line.split()[2])
            frames.append(len(payload).to_bytes(4, "big") + payload)
    return frames


def empty_requests(routes: list[Route]) -> Iterator[bytes]:
    """What every API is without contents, in every version."""
    from headrace.broker.handlers import HANDLERS as OF_THE_BROKER
    from headrace.controller.handlers import HANDLERS as OF_THE_CONTROLLER

    served = {(route.api_key, route.version) for route in routes}
    for api in (*OF_THE_BROKER, *OF_THE_CONTROLLER):
        request = getattr(api.messages, f"{api.messages.NAME}Request")()
        for version in api.versions:
            if (api.messages.API_KEY, version) in served:
                pieces = encode_request(api.messages, version, 1, "fuzz", request)
                yield b"".join(bytes(piece) for piece in pieces)  # type: ignore[arg-type]


def plain_login() -> list[bytes]:
    from headrace.protocol.messages import sasl_authenticate, sasl_handshake

    token = b"\0".join((b"", USER.encode(), PASSWORD.encode()))
    asked = [
        (sasl_handshake, sasl_handshake.SaslHandshakeRequest("PLAIN")),
        (sasl_authenticate, sasl_authenticate.SaslAuthenticateRequest(token)),
    ]
    return [
        b"".join(bytes(piece) for piece in encode_request(messages, 1, 1, "fuzz", request))  # type: ignore[arg-type]
        for messages, request in asked
    ]


def seeds(routes: list[Route]) -> Iterator[bytes]:
    frames = [*captured(), *empty_requests(routes)]
    login = plain_login()
    for frame in frames:
        yield unframed([frame], routes)
        yield bytes([RAW | AFTER_LOGIN]) + frame
    for frame in frames[:: max(1, len(frames) // 50)]:
        logged_in = unframed([*login, frame], routes)
        yield bytes([BEFORE_LOGIN]) + logged_in[1:]
        yield bytes([RAW | BEFORE_LOGIN]) + b"".join(login) + frame
    for some in range(0, len(frames), 8):
        yield unframed(frames[some : some + 8], routes)
