"""Headers and frames, on a client's side of a connection; the generated headers are the judge."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.protocol import framing, messages
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages import api_versions, heartbeat, request_header, response_header

PLAIN, FLEXIBLE = 3, 4  # versions of Heartbeat


def joined(frame: list[Any]) -> bytes:
    return b"".join(frame)


@pytest.mark.parametrize("version", [PLAIN, FLEXIBLE])
@pytest.mark.parametrize("client_id", [None, "", "kcat", "é" * 200])
def test_a_request_is_read_as_it_was_written(version: int, client_id: str | None) -> None:
    request = heartbeat.HeartbeatRequest("group", 3, "member")
    frame = joined(framing.encode_request(heartbeat, version, 77, client_id, request))
    view = memoryview(frame)
    assert int.from_bytes(view[:4], "big") == len(frame) - 4
    header, pos = header_of(view, flexible=version >= heartbeat.FLEXIBLE_FROM)
    assert (header.request_api_key, header.request_api_version) == (12, version)
    assert (header.correlation_id, header.client_id) == (77, client_id)
    assert heartbeat.DECODE_REQUEST[version](view, pos) == (request, len(frame))


def header_of(frame: memoryview, *, flexible: bool) -> tuple[request_header.RequestHeader, int]:
    return request_header.DECODE[2 if flexible else 1](frame, 4)


@pytest.mark.parametrize("version", [PLAIN, FLEXIBLE])
def test_a_response_is_read_as_it_was_written(version: int) -> None:
    response = heartbeat.HeartbeatResponse(100, 27)
    pieces: list[Any] = []
    response_header.ENCODE[version >= heartbeat.FLEXIBLE_FROM](
        response_header.ResponseHeader(-5), pieces.append
    )
    heartbeat.ENCODE_RESPONSE[version](response, pieces.append)
    frame = memoryview(b"".join(pieces))
    assert framing.decode_response(heartbeat, version, frame) == (-5, response)


def test_the_header_is_flexible_with_the_version_but_never_for_answers_to_api_versions() -> None:
    assert framing.response_header_is_flexible(heartbeat, FLEXIBLE)
    assert not framing.response_header_is_flexible(api_versions, 4)
    assert framing.request_header_is_flexible(api_versions, 4)


@pytest.mark.parametrize("length", range(5))
def test_a_header_cut_short_is_malformed(length: int) -> None:
    with pytest.raises(MalformedMessage):
        framing.decode_response_header(memoryview(bytes(5))[:length], 0, True)


def test_every_api_can_be_framed_in_every_version() -> None:
    for name in messages.API_MODULES.values():
        module = messages.load(name)
        for version in module.VERSIONS:
            request = getattr(module, f"{module.NAME}Request")()
            frame = joined(framing.encode_request(module, version, 1, None, request))
            flexible = framing.request_header_is_flexible(module, version)
            _, pos = header_of(memoryview(frame), flexible=flexible)
            assert module.DECODE_REQUEST[version](memoryview(frame), pos)[1] == len(frame)
