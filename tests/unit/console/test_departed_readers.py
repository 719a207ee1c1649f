"""A reader that leaves during an answer is one line of the console's log; a bug keeps its trace."""

from __future__ import annotations

import pytest
from aiohttp import ClientConnectionResetError

from headrace.console.main import CONNECTIONS


def log_like_aiohttp(fault: Exception) -> None:
    try:
        raise fault
    except type(fault):
        CONNECTIONS.exception("Error handling request from %s", "127.0.0.1")


@pytest.mark.parametrize(
    "fault",
    [
        ClientConnectionResetError("Cannot write to closing transport"),
        ConnectionResetError("100 %s"),
        BrokenPipeError(32, "Broken pipe"),
        TimeoutError(),
    ],
)
def test_a_reader_that_leaves_is_one_line(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log_like_aiohttp(fault)
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("INFO", None)
    assert record.getMessage().startswith("Error handling request from 127.0.0.1: ")
    assert len(caplog.text.splitlines()) == 1


def test_a_bug_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_like_aiohttp(KeyError("a bug"))
    assert caplog.records[0].exc_info and "Traceback" in caplog.text
