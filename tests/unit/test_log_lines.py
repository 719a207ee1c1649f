"""Nobody writes lines of his own into the log or the audit by what he calls himself (CWE-117)."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from headrace.environment import Now
from headrace.log_lines import JsonLines, OneLine, ToStderr
from headrace.node.serving.audit_lines import Auditor
from headrace.node.serving.principal import Principal
from headrace.node.serving.session import Session

NAME = "ann\r\n2026-11-16 ERROR headrace: all is lost\u2028\x1b[2J\x85\x9b\u202e"


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.LogRecord("headrace", logging.WARNING, "", 0, "from %s", (NAME,), None)


def test_a_message_is_one_line(record: logging.LogRecord) -> None:
    line = OneLine().format(record)
    assert len(line.splitlines()) == 1 and line.isprintable()
    assert r"ann\r\n2026" in line, "and nothing of it is lost"


def test_a_traceback_is_no_line_of_the_logs_own(record: logging.LogRecord) -> None:
    try:
        raise ValueError(NAME)
    except ValueError:
        record.exc_info = sys.exc_info()
    first, *rest = OneLine().format(record).splitlines()
    assert "from ann" in first
    assert len(rest) > 2 and all(line.startswith("  ") for line in rest)
    assert all(line.isprintable() for line in rest)


def test_a_line_of_json_is_one_line_and_exact(record: logging.LogRecord) -> None:
    line = JsonLines().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"from {NAME}"


def test_a_handler_left_by_a_command_writes_to_no_closed_stream(
    record: logging.LogRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_command, afterwards = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", of_command)
    handler = ToStderr()
    handler.emit(record)
    assert of_command.getvalue()
    of_command.close()
    monkeypatch.setattr(sys, "stderr", afterwards)
    handler.emit(record)
    assert afterwards.getvalue().startswith("from ann")


def test_a_line_of_the_audit_is_one_line() -> None:
    auditor, session = Auditor(Now(0, 0)), Session("10.0.0.1", "SASL_PLAINTEXT")
    session.principal = Principal("User", NAME)
    auditor.note("denied", session, resource=f"topic {NAME}")
    [noted] = auditor.take()
    assert len(noted.splitlines()) == 1 and noted.isprintable()
