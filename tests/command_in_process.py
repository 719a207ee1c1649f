"""`headrace WORDS` in the test's own process: the entry point, with its exit code and its streams.

For tests of what the whole command says and how it ends. A process of its own costs 0.3 s of
processor time; tests of the process itself (signals, pipes, what is loaded) start one.
"""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass

import pytest

from headrace.cli.main import run
from tests.restored_log import log_as_before


@dataclass(slots=True)
class Ended:
    """How a command ended; its fields are named as those of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def run_command(*words: str, stdin: str = "") -> Ended:
    """Standard input is a stream without a file descriptor, so commands that read descriptor 0
    need a process."""
    out, err = _stream(), _stream()
    with (
        pytest.MonkeyPatch.context() as patch,
        log_as_before(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["headrace", *words])
        patch.setattr(sys, "stdin", _stream(stdin))
        with pytest.raises(SystemExit) as ended:
            run()
    assert isinstance(ended.value.code, int)
    return Ended(ended.value.code, _text(out), _text(err))


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
