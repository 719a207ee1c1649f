"""Headers and frames, on both sides of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from headrace.protocol import framing, messages
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.messages import api_versions, fetch, heartbeat, request_header

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
    assert framing.peek_request(view, 4) == (12, version, 77)
    header, pos = framing.decode_request_header(view, 4, version >= heartbeat.FLEXIBLE_FROM)
    assert (header.api_key, header.version, header.correlation_id) == (12, version, 77)
    assert header.client_id == client_id
    assert heartbeat.DECODE_REQUEST[version](view, pos) == (request, len(frame))


@pytest.mark.parametrize("flexible", [False, True])
def test_the_header_is_the_one_of_the_definition(flexible: bool) -> None:
    pieces: list[Any] = []
    defined = request_header.RequestHeader(12, PLAIN + flexible, 77, "kcat")
    request_header.ENCODE[1 + flexible](defined, pieces.append)
    frame = joined(framing.encode_request(heartbeat, PLAIN + flexible, 77, "kcat", _request()))
    assert frame[4:].startswith(b"".join(pieces))


def _request() -> heartbeat.HeartbeatRequest:
    return heartbeat.HeartbeatRequest("g", 1, "m")


@pytest.mark.parametrize("version", [PLAIN, FLEXIBLE])
def test_a_response_is_read_as_it_was_written(version: int) -> None:
    response = heartbeat.HeartbeatResponse(100, 27)
    frame = joined(framing.encode_response(heartbeat, version, -5, response))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert framing.decode_response(heartbeat, version, memoryview(frame)[4:]) == (-5, response)


def test_the_flexible_header_has_one_more_byte_but_never_for_api_versions() -> None:
    assert len(joined(framing.encode_frame(1, True, [b"body"]))) == 4 + 4 + 1 + 4
    assert len(joined(framing.encode_frame(1, False, [b"body"]))) == 4 + 4 + 4
    assert framing.response_header_is_flexible(heartbeat, FLEXIBLE)
    assert not framing.response_header_is_flexible(api_versions, 4)
    assert framing.request_header_is_flexible(api_versions, 4)


@dataclass(slots=True)
class OnDisk:
    """Like a slice of a file: has a length, and its bytes are not here."""

    length: int

    def __len__(self) -> int:
        return self.length


def test_bytes_in_files_count_but_are_not_touched() -> None:
    on_disk: Any = OnDisk(1_000_000)
    partition = fetch.PartitionData(records=on_disk)
    response = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse("t", partitions=[partition])]
    )
    frame = framing.encode_response(fetch, 12, 1, response)
    assert any(piece is on_disk for piece in frame)
    head: Any = frame[0]
    assert int.from_bytes(head[:4], "big") == sum(map(len, frame)) - 4 > 1_000_000


@pytest.mark.parametrize("length", range(14))
def test_a_header_cut_short_is_malformed(length: int) -> None:
    frame = joined(framing.encode_request(heartbeat, FLEXIBLE, 77, "kcat", _request()))
    with pytest.raises(MalformedMessage):
        framing.decode_request_header(memoryview(frame)[4 : 4 + length], 0, True)
    with pytest.raises(MalformedMessage):
        framing.decode_response_header(memoryview(frame)[: min(length, 4)], 0, True)


def test_a_client_id_that_is_no_text_is_malformed() -> None:
    header = framing.REQUEST_HEAD.pack(12, 3, 1, 2) + b"\xff\xff"
    with pytest.raises(MalformedMessage):
        framing.decode_request_header(memoryview(header), 0, False)
    with pytest.raises(MalformedMessage):
        framing.peek_request(memoryview(header)[:5], 0)


def test_every_api_can_be_framed_in_every_version() -> None:
    for name in messages.API_MODULES.values():
        module = messages.load(name)
        for version in module.VERSIONS:
            request = getattr(module, f"{module.NAME}Request")()
            frame = joined(framing.encode_request(module, version, 1, None, request))
            flexible = framing.request_header_is_flexible(module, version)
            _, pos = framing.decode_request_header(memoryview(frame), 4, flexible)
            assert module.DECODE_REQUEST[version](memoryview(frame), pos)[1] == len(frame)
