"""Which heads of requests are framed here, and which are left to aiohttp."""

from __future__ import annotations

import pytest

from headrace.services.http.request_head import LONGEST_HEAD, MOST_HEADERS, read_head

FIRST = b"POST /topics/orders?x=1 HTTP/1.1"


def head(*lines: bytes, first: bytes = FIRST) -> bytes:
    return b"\r\n".join([first, *lines, b"", b""])


def test_a_head_is_read_up_to_its_body() -> None:
    data = head(b"Host: localhost:8082", b"CONTENT-length:  12\t", b"X-Empty:") + b"abc\r\n\r\n"
    read = read_head(data)
    assert read is not None
    assert (read.method, read.target) == ("POST", "/topics/orders?x=1")
    assert dict(read.headers) == {"host": "localhost:8082", "content-length": "12", "x-empty": ""}
    assert read.headers.get("Host") == read.headers["HOST"] == "localhost:8082"
    assert "Content-Length" in read.headers and "Origin" not in read.headers
    assert (data[read.size :], read.body_size, read.is_plain) == (b"abc\r\n\r\n", 12, True)


def test_without_a_length_there_is_no_body() -> None:
    read = read_head(head(b"Host: a"))
    assert read is not None and read.body_size == 0


@pytest.mark.parametrize(
    "lines",
    [
        [b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding : chunked", b"Content-Length: 3"],
        [b"Content-Length: 3", b"transfer-encoding: identity"],
        [b"Content-Length: 3", b"content-length: 3"],
        [b"Content-Length: 3, 3"],
        [b"Content-Length: +3"],
        [b"Content-Length: -3"],
        [b"Content-Length: 0x3"],
        [b"Content-Length: \xb3"],
        [b"Content-Length:"],
        [b"Content-Length: " + b"9" * 19],
        [b"Content-Length : 3"],
        [b"Host: a", b" Content-Length: 3"],
        [b"Host: a\nContent-Length: 3"],
        [b"Host: a\rContent-Length: 3"],
        [b"Host: a\x00"],
        [b": a"],
        [b"Host"],
        [b"Upgrade: websocket"],
        [b"Connection: close"],
        [b"Proxy-Connection: close"],
        [b"Sec-WebSocket-Key1: a"],
        [b"Connection: keep-alive, Upgrade"],
        [b"X: 1"] * (MOST_HEADERS + 1),
        [b"X: " + b"x" * LONGEST_HEAD],
    ],
)
def test_what_could_be_framed_in_two_ways_is_left_to_aiohttp(lines: list[bytes]) -> None:
    assert read_head(head(*lines)) is None


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.0",
        b"GET / HTTP/2.0",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"get / HTTP/1.1",
        b"GET http://a/ HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT /a HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"",
        b"\r\nGET / HTTP/1.1",
    ],
)
def test_an_unusual_first_line_is_left_to_aiohttp(first: bytes) -> None:
    assert read_head(head(b"Host: a", first=first)) is None


@pytest.mark.parametrize("lines", [[b"X: \xe4"], [b"X: 1", b"x: 2"]])
def test_a_head_may_be_framed_and_not_plain(lines: list[bytes]) -> None:
    read = read_head(head(b"Content-Length: 3", *lines))
    assert read is not None and read.body_size == 3 and not read.is_plain
