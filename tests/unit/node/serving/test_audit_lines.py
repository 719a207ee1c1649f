"""What is noted, how often, and that nobody can make it grow without end."""

import json

import pytest

from headrace.environment import Now
from headrace.node.serving import audit_lines
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.audit_lines import DENIED, LOGIN_FAILED, Auditor, audited
from headrace.node.serving.principal import Principal
from headrace.node.serving.session import Session
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import delete_topics


@pytest.fixture
def auditor():
    return Auditor(Now(0, 1_700_000_000_123))


@pytest.fixture
def session():
    found = Session("10.0.0.1", "OUTSIDE")
    found.principal = Principal("User", "ann")
    return found


def taken(auditor):
    return [json.loads(line) for line in auditor.take()]


def test_a_line_says_who_from_where_and_what(auditor, session):
    auditor.note(DENIED, session, api="Produce", operation="WRITE", resource="topic orders")
    assert taken(auditor) == [
        {
            "time": "2023-11-14T22:13:20.123+00:00",
            "event": "denied",
            "principal": "User:ann",
            "host": "10.0.0.1",
            "listener": "OUTSIDE",
            "api": "Produce",
            "operation": "WRITE",
            "resource": "topic orders",
        }
    ]
    assert not auditor.waiting and taken(auditor) == []


def test_the_same_again_is_one_line(auditor, session):
    for _ in range(1_000):
        auditor.note(LOGIN_FAILED, session, mechanism="PLAIN", user="ann")
    auditor.note(LOGIN_FAILED, session, mechanism="PLAIN", user="bob")
    first, second = taken(auditor)
    assert first["times"] == 1_000 and "times" not in second
    assert auditor.noted == 1_001


def test_too_many_different_ones_are_dropped_and_counted(auditor, session, monkeypatch):
    monkeypatch.setattr(audit_lines, "MOST_WAITING", 10)
    for number in range(25):
        auditor.note(LOGIN_FAILED, session, user=f"user-{number}")
    lines = taken(auditor)
    assert len(lines) == 11
    assert lines[-1]["event"] == "dropped" and lines[-1]["count"] == 15
    assert auditor.dropped == 15
    auditor.note(LOGIN_FAILED, session, user="later")
    assert [line["user"] for line in taken(auditor)] == ["later"]


def test_long_and_many_names_are_cut(auditor, session):
    auditor.note(DENIED, session, resource="x" * 10_000, names=[str(n) for n in range(1_000)])
    [line] = taken(auditor)
    assert len(line["resource"]) < 600
    assert line["names"][-1] == "and 950 more" and len(line["names"]) == 51


def test_a_name_cannot_begin_a_line_of_its_own(auditor, session):
    auditor.note(LOGIN_FAILED, session, user='ann"}\n{"event":"change\u2028')
    [line] = auditor.take()
    assert "\n" not in line and line.isascii()
    assert json.loads(line)["event"] == "login-failed"


def test_switched_off_nothing_is_kept(session):
    auditor = Auditor(Now(0, 0), enabled=False)
    auditor.note(DENIED, session)
    assert not auditor.waiting and auditor.noted == 0


def wrapped(auditor, answer):
    def handle(owner, request, call):
        if isinstance(answer, Exception):
            raise answer
        return answer

    api = Api(messages=delete_topics, handle=handle, versions=range(1))
    return audited(api, auditor, lambda request, got: {"got": str(got)}).handle


def call_of(session):
    return Call(Now(0, 0), 0, memoryview(b""), session, 1)


def test_an_answer_is_noted_when_it_is_given(auditor, session):
    assert wrapped(auditor, "now")(None, None, call_of(session)) == "now"
    assert taken(auditor)[0]["got"] == "now"


def test_an_answer_that_comes_later_is_noted_then_and_once(auditor, session):
    ready = []
    waiting = WaitingRequest(
        lambda expired: "late" if ready or expired else None, deadline_ms=1, hangs_on=[]
    )
    assert wrapped(auditor, waiting)(None, None, call_of(session)) is waiting
    assert waiting.attempt(False) is None and not auditor.waiting
    ready.append(True)
    assert waiting.attempt(False) == "late"
    [line] = taken(auditor)
    assert line["event"] == "change" and line["api"] == "DeleteTopics" and line["got"] == "late"


def test_a_refusal_is_noted_and_stays_a_refusal(auditor, session):
    refusal = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError):
        wrapped(auditor, refusal)(None, None, call_of(session))
    assert taken(auditor)[0]["error"] == "CLUSTER_AUTHORIZATION_FAILED"
