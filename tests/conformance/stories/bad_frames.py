"""Frames that are no requests: what is answered, and what ends the connection."""

from __future__ import annotations

import struct

from headrace.wire.protocol.messages import list_offsets, metadata, produce
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.stage import Stage
from tests.conformance.wire import encode_body, encode_header


def api_keys_that_do_not_exist(stage: Stage) -> None:
    for key in (-1, 999, 32767, 4, 5, 6, 7):
        stage.send_raw(f"key {key}", encode_header(key, 0, 7, flexible=False))


def versions_that_do_not_exist(stage: Stage) -> None:
    for api in (metadata, list_offsets, produce):
        for version in (-1, api.VERSIONS.stop + 1, 1000):
            frame = encode_header(api.API_KEY, version, 7, flexible=version > 8) + bytes(40)
            stage.send_raw(f"{api.NAME} v{version}", frame)
    for version in (0, 1, 2):  # listed for old clients' sake, but refused
        stage.send_raw(f"Produce v{version}", encode_header(0, version, 7, flexible=False))
    stage.send_raw("ListOffsets v0", encode_header(2, 0, 7, flexible=False) + bytes(8))


def bodies_cut_short(stage: Stage) -> None:
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])])
    for version in (1, 5, 6, 11):
        flexible = version >= list_offsets.FLEXIBLE_FROM
        body = encode_body(list_offsets, version, request)
        head = encode_header(2, version, 7, flexible=flexible)
        for cut in (1, len(body) // 2, len(body)):
            stage.send_raw(f"v{version} without {cut} bytes", head + body[: len(body) - cut])


def counts_that_cannot_be(stage: Stage) -> None:
    """An array longer than the frame, or of negative length."""
    for count in (2**31 - 1, -2, 1000):
        frame = encode_header(3, 8, 7, flexible=False) + struct.pack(">i", count) + b"\0\0\0"
        stage.send_raw(f"Metadata v8 with {count} topics", frame, words=False)
    frame = encode_header(3, 9, 7, flexible=True) + b"\xff\xff\xff\xff\x07\0\0\0"
    stage.send_raw("Metadata v9 with a huge compact array", frame, words=False)
    frame = encode_header(3, 8, 7, flexible=False) + struct.pack(">ih", 1, -1) + b"\0\0\0"
    stage.send_raw("Metadata v8 with a null name", frame, words=False)
    frame = encode_header(3, 8, 7, flexible=False) + struct.pack(">ih", 1, 500) + b"\0\0\0"
    stage.send_raw("Metadata v8 with a name longer than the frame", frame, words=False)


def lengths_that_cannot_be(stage: Stage) -> None:
    stage.send_raw("negative", b"", length=-1)
    stage.send_raw("beyond the limit", b"GET / HTTP/1.1\r\n", length=2**31 - 1)
    stage.send_raw("zero", b"")
    stage.send_raw("one byte", b"\0")
    stage.send_raw("half a header", struct.pack(">hh", 18, 0))
    stage.send_raw("text", b"GET / HTTP/1.1\r\n\r\n")


def headers_of_every_kind(stage: Stage) -> None:
    """A null name, an empty name and unknown tags are fine."""
    request = encode_body(
        metadata, 9, MetadataRequest([MetadataRequestTopic(name="no such")], False)
    )
    for name in (None, "", "ü" * 20):
        frame = encode_header(3, 9, 7, flexible=True, client_id=name)
        stage.send_raw(f"client {name}", frame + request, words=False)
    tagged = encode_header(3, 9, 7, flexible=True)[:-1] + b"\x01\x63\x03abc"
    stage.send_raw("unknown tag", tagged + request, words=False)


def bytes_behind_the_body(stage: Stage) -> None:
    body = encode_body(metadata, 9, MetadataRequest([], False))
    frame = encode_header(3, 9, 7, flexible=True) + body + bytes(10)
    stage.send_raw("ten zeros", frame, words=False)


STORIES = (
    api_keys_that_do_not_exist,
    versions_that_do_not_exist,
    bodies_cut_short,
    counts_that_cannot_be,
    lengths_that_cannot_be,
    headers_of_every_kind,
    bytes_behind_the_body,
)
