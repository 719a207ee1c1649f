"""Targets tell what failed, outlive what they call, and call nothing they should not."""

import asyncio
import json

import pytest
from aiohttp import web

from headrace.app.triggers import http_target
from headrace.app.triggers.cloud_events import Event, signature_is_good
from headrace.app.triggers.function_target import FunctionTarget
from headrace.app.triggers.http_target import HttpTarget
from headrace.app.triggers.targets import Failure, TargetFailed

FUNCTIONS = """
import os, time

def remember(events):
    with open(os.environ["SEEN"], "a") as file:
        for event in events:
            file.write(event.id + "\\n")

def some_fail(events):
    return [event.id for event in events if event.data == b"bad"]

def raises(events):
    raise LookupError("no such customer")

def exits(events):
    raise SystemExit(3)

def dies(events):
    os._exit(9)

def hangs(events):
    time.sleep(600)

def eats(events):
    return bytearray(10**10)

number = 7
"""


def event(id="a", data=b"{}"):
    return Event(id=id, source="/t/0", type="t", time_ms=0, subject=None, data=data)


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "trigger_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path


def call(target, *events):
    async def run():
        try:
            return await target.call(list(events))
        finally:
            await target.close()

    return asyncio.run(run())


def test_a_function_is_called_in_a_process_of_its_own(functions):
    assert call(FunctionTarget("trigger_functions:remember"), event("a"), event("b")) == []
    assert (functions / "seen").read_text() == "a\nb\n"


def test_a_function_names_what_failed(functions):
    failed = call(FunctionTarget("trigger_functions:some_fail"), event("a"), event("b", b"bad"))
    assert failed == [Failure("b", "named by the function")]


@pytest.mark.parametrize(
    ("name", "words"),
    [("raises", "LookupError: no such customer"), ("exits", "SystemExit"), ("dies", "died")],
)
def test_a_function_that_fails_fails_its_call_and_the_next_call_works(functions, name, words):
    async def story():
        target = FunctionTarget(f"trigger_functions:{name}")
        for _ in range(2):
            with pytest.raises(TargetFailed, match=words) as failure:
                await target.call([event()])
            assert failure.value.retriable
        await target.close()

    asyncio.run(story())


def test_a_function_over_its_time_is_killed(functions):
    with pytest.raises(TargetFailed, match="ran over its 0.5 s"):
        call(FunctionTarget("trigger_functions:hangs", timeout_s=0.5), event())


def test_a_function_over_its_memory_gets_an_error(functions):
    target = FunctionTarget("trigger_functions:eats", memory_bytes=1 << 30)
    with pytest.raises(TargetFailed, match="MemoryError"):
        call(target, event())


@pytest.mark.parametrize("name", ["trigger_functions:absent", "no_such_module:f", "os:sep"])
def test_a_function_that_cannot_be_loaded_is_not_tried_again(functions, name):
    with pytest.raises(TargetFailed, match="cannot load") as failure:
        call(FunctionTarget(name), event())
    assert not failure.value.retriable


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
        answer = json.dumps({"failed": ["a", {"id": "b", "reason": "no stock"}, 7]}).encode()
        endpoint.answers.append((200, {}, answer))
        failed = await target.call([event("a"), event("b"), event("c")])
        assert failed == [Failure("a", "named by the endpoint"), Failure("b", "no stock")]
        assert len(json.loads(endpoint.requests[0][1])) == 3

    with_endpoint(story)


@pytest.mark.parametrize("answer", [b"", b"ok", b"{", b'{"failed": 3}', b"{}" + b" " * 2_000_000])
def test_an_answer_of_another_form_names_none(answer):
    assert http_target.failures_in(answer) == []


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


def test_an_endpoint_that_is_not_there_counts_as_down(unused_port=1):
    target = HttpTarget(
        f"http://127.0.0.1:{unused_port}/", allow_hosts=["127.0.0.1"], now_s=lambda: 0
    )
    with pytest.raises(TargetFailed) as failure:
        call(target, event())
    assert failure.value.retriable and failure.value.target_is_down
