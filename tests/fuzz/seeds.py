"""Where a fuzzer begins: frames that real clients have sent, and one of each API and version.

`captures.txt` was recorded by `python -m tests.fuzz.capture` from librdkafka and Apache Kafka's
Java tools: API, version and the bytes of one frame per line.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from headrace.node.serving.route import Route
from headrace.wire.protocol.framing import encode_request
from tests.fuzz.logins import login_seeds, plain_login
from tests.fuzz.target import unframed
from tests.fuzz.variants import BEFORE_LOGIN, GUARDED, LIMITED, LOGIN, OPEN, flags_of

CAPTURES = Path(__file__).with_name("captures.txt")


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
    from headrace.node.broker.handlers import HANDLERS as OF_THE_BROKER
    from headrace.node.controller.handlers import HANDLERS as OF_THE_CONTROLLER

    served = {(route.api_key, route.version) for route in routes}
    for api in (*OF_THE_BROKER, *OF_THE_CONTROLLER):
        request = getattr(api.messages, f"{api.messages.NAME}Request")()
        for version in api.versions:
            if (api.messages.API_KEY, version) in served:
                pieces = encode_request(api.messages, version, 1, "fuzz", request)
                yield b"".join(bytes(piece) for piece in pieces)


def seeds(routes: list[Route]) -> Iterator[bytes]:
    frames = [*captured(), *empty_requests(routes)]
    login = plain_login()
    for frame in frames:
        yield unframed([frame], routes)
        yield bytes([flags_of(OPEN, raw=True)]) + frame
    for frame in captured():
        for variant in (GUARDED, LIMITED):
            yield unframed([frame], routes, flags_of(variant))
    for frame in frames[:: max(1, len(frames) // 50)]:
        yield unframed([*login, frame], routes, flags_of(BEFORE_LOGIN))
        yield bytes([flags_of(BEFORE_LOGIN, raw=True)]) + b"".join(login) + frame
    for some in range(0, len(frames), 8):
        yield unframed(frames[some : some + 8], routes)
    for seed in login_seeds():
        yield bytes([flags_of(LOGIN)]) + seed
