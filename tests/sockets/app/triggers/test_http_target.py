"""Targets that are HTTP endpoints tell what failed, and call nothing they should not."""

import asyncio
import json

import pytest
from aiohttp import web

from headrace.app.triggers import http_target
from headrace.app.triggers.cloud_events import Event, signature_is_good
from headrace.app.triggers.http_target import HttpTarget
from headrace.app.triggers.targets import Failure, TargetFailed
from tests.sockets.nobody import nobody


def event(id="a", data=b"{}"):
    return Event(id=id, source="/t/0", type="t", time_ms=0, subject=None, data=data)


def call(target, *events):
    async def run():
        try:
            return await target.call(list(events))
        finally:
            await target.close()

    return asyncio.run(run())


class Endpoint:
    """A real HTTP server on loopback that answers as told and remembers what it got."""

    def __init__(self):
        self.requests = []
        self.answers = []

    async def handle(self, request):
        self.requests.append((request.headers.copy(), await request.read()))
        status, headers, body = self.answers.pop(0) if self.answers else (200, {}, b"")
        return web.Response(status=status, headers=headers, body=body)


def with_endpoint(story):
    async def run():
        endpoint = Endpoint()
        application = web.Application()
        application.router.add_post("/hook", endpoint.handle)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        target = HttpTarget(
            f"http://localhost:{port}/hook",
            secret=b"secret",
            allow_hosts=["localhost"],
            headers={"authorization": "Bearer x\r\nx-evil: 1"},
            now_s=lambda: 1_000,
        )
        try:
            await story(endpoint, target)
        finally:
            await target.close()
            await runner.cleanup()

    asyncio.run(run())


def test_an_endpoint_gets_a_signed_event():
    async def story(endpoint, target):
        assert await target.call([event(data=b'{"a":1}')]) == []
        headers, body = endpoint.requests[0]
        assert body == b'{"a":1}'
        assert headers["ce-id"] == "a"
        assert signature_is_good(headers["headrace-signature"], body, b"secret", now_s=1_000)
        assert "x-evil" not in headers

    with_endpoint(story)


def test_an_endpoint_names_what_failed_of_a_batch():
    async def story(endpoint, target):
        answer = json.dumps({"failed": ["a", {"id": "b", "reason": "no stock"}]}).encode()
        endpoint.answers.append((200, {}, answer))
        failed = await target.call([event("a"), event("b"), event("c")])
        assert failed == [Failure("a", "named by the endpoint"), Failure("b", "no stock")]
        assert len(json.loads(endpoint.requests[0][1])) == 3

    with_endpoint(story)


@pytest.mark.parametrize(
    "answer", [b"", b"ok", b"[1]", b"{}", b'{"failed": 0}', b'{"failed": []}', b'{"failed": null}']
)
def test_an_answer_of_another_form_names_none(answer):
    assert http_target.failures_in(answer) == []


@pytest.mark.parametrize(
    "answer",
    [
        b"{",
        b'{"failed": ["a"',
        b'{"failed": 3}',
        b'{"failed": "a"}',
        b'{"failed": [7]}',
        b'{"failed": [{"id": 5}]}',
        b'{"failed": ' + b"[" * 100_000,
        b"{}" + b" " * 2_000_000,
    ],
)
def test_an_answer_that_cannot_be_read_counts_nothing_as_done(answer):
    with pytest.raises(TargetFailed, match="answer") as failure:
        http_target.failures_in(answer)
    assert failure.value.retriable and not failure.value.target_is_down


def test_an_answer_with_a_byte_order_mark_is_read():
    said = b'\xef\xbb\xbf{"failed": ["a"]}'
    assert http_target.failures_in(said) == [Failure("a", "named by the endpoint")]


HEAD = b"HTTP/1.1 200 OK\r\n"
ANSWER = b'{"failed": ["a"]}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(ANSWER)


def answered_in_pieces(*pieces, waits_between):
    """One call to an endpoint that sends its answer in pieces and then closes."""

    async def run():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await waits_between()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        target = HttpTarget(f"http://localhost:{port}/", allow_hosts=["localhost"], now_s=lambda: 0)
        try:
            return await target.call([event()])
        finally:
            await target.close()
            server.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    "pieces",
    [
        (WHOLE, ANSWER[:5], ANSWER[5:]),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + ANSWER[:5] + b"\r\n",
         b"c\r\n" + ANSWER[5:] + b"\r\n0\r\n\r\n"),
    ],
)  # fmt: skip
def test_an_answer_that_comes_in_pieces_is_read_to_its_end(pieces):
    """Its first piece alone is not JSON: the failed record would count as done."""

    async def some_turns():  # of the loop, in which the client reads what it has
        for _ in range(50):
            await asyncio.sleep(0)

    failed = answered_in_pieces(*pieces, waits_between=some_turns)
    assert failed == [Failure("a", "named by the endpoint")]


def test_an_endpoint_that_closes_in_the_middle_of_its_answer_has_failed():
    async def at_once():
        pass

    with pytest.raises(TargetFailed, match="cannot reach") as failure:
        answered_in_pieces(WHOLE, ANSWER[:5], waits_between=at_once)
    assert failure.value.retriable
    with pytest.raises(TargetFailed, match="answer"):
        answered_in_pieces(HEAD + b"Connection: close\r\n\r\n", ANSWER[:5], waits_between=at_once)


@pytest.mark.parametrize(
    ("status", "headers", "retriable", "pause_ms"),
    [
        (503, {"retry-after": "7"}, True, 7_000),
        (429, {"retry-after": "soon"}, True, 0),
        (500, {}, True, 0),
        (400, {}, False, 0),
        (302, {"location": "/elsewhere"}, False, 0),
    ],
)
def test_a_status_says_whether_to_come_again(status, headers, retriable, pause_ms):
    async def story(endpoint, target):
        endpoint.answers.append((status, headers, b""))
        with pytest.raises(TargetFailed, match=str(status)) as failure:
            await target.call([event()])
        assert (failure.value.retriable, failure.value.retry_after_ms) == (retriable, pause_ms)
        assert len(endpoint.requests) == 1

    with_endpoint(story)


def test_a_name_that_leads_to_a_private_address_is_refused():
    target = HttpTarget("http://localhost:9/hook", now_s=lambda: 0)
    with pytest.raises(TargetFailed, match="allow_hosts") as failure:
        call(target, event())
    assert not failure.value.retriable


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/x",
        "http://[::ffff:10.0.0.1]/x",
        "http://10.1.2.3/x",
        "http://0.0.0.0/x",
        "ftp://example.org/x",
        "file:///etc/passwd",
        "http://user:secret@example.org/",
        "nonsense",
    ],
)
def test_an_address_that_may_not_be_called_is_refused_at_once(url):
    with pytest.raises(ValueError):
        HttpTarget(url, now_s=lambda: 0)


def test_an_endpoint_that_is_not_there_counts_as_down():
    target = HttpTarget(f"http://{nobody()}/", allow_hosts=["127.0.0.1"], now_s=lambda: 0)
    with pytest.raises(TargetFailed) as failure:
        call(target, event())
    assert failure.value.retriable and failure.value.target_is_down
