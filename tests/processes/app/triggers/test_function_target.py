"""Targets that are functions tell what failed, and outlive what they call."""

import asyncio

import pytest

from headrace.app.triggers.cloud_events import Event
from headrace.app.triggers.function_target import FunctionTarget
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
