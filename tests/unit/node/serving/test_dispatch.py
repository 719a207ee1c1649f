"""Frames in, replies out: order, bounds, and what ends a connection."""

from struct import pack
from typing import Any

import pytest

from headrace.node.serving.api import ClosesConnection, WaitingRequest
from headrace.node.serving.dispatch import MOST_BYTES_OWED, MOST_REQUESTS_IN_LINE
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from tests.unit.node.serving.conversation import (
    Conversation,
    api_versions,
    find_coordinator,
    frame,
    metadata,
)

API_VERSIONS, METADATA, FIND_COORDINATOR = 18, 3, 10


def answer_metadata(owner, request, call):
    return metadata.MetadataResponse(controller_id=call.correlation_id)


class Gate:
    """Something to wait for."""

    def __init__(self):
        self.waiting = {}
        self.open = False

    def wait(self, answer, *, mutes=False):
        def attempt(expired):
            return answer if self.open or expired else None

        return WaitingRequest(attempt, deadline_ms=1000, hangs_on=[self], mutes=mutes)


def test_several_frames_in_one_read_are_answered_in_order():
    talk = Conversation({metadata: answer_metadata})
    data = b"".join(frame(METADATA, 1, pack(">i", -1), correlation_id=n) for n in range(5))
    assert talk.send(data) == len(data)
    assert [correlation_id for correlation_id, _ in talk.replies()] == [0, 1, 2, 3, 4]


def test_a_torn_frame_is_left_and_its_size_is_known():
    talk = Conversation({metadata: answer_metadata})
    whole = frame(METADATA, 1, pack(">i", -1))
    assert talk.send(whole + whole[:9]) == len(whole)
    assert talk.session.frame_size == len(whole)
    assert talk.send(whole[:7]) == 0
    assert talk.session.frame_size == 0  # eight bytes are needed to believe anything


def test_a_later_answer_waits_for_an_earlier_one():
    gate = Gate()
    talk = Conversation(
        {
            metadata: answer_metadata,
            find_coordinator: lambda owner, request, call: gate.wait(
                find_coordinator.FindCoordinatorResponse()
            ),
        }
    )
    talk.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g", correlation_id=1))
    talk.send(frame(METADATA, 1, pack(">i", -1), correlation_id=2))
    assert talk.replies() == []
    gate.open = True
    talk.purgatory.wake(gate)
    talk.purgatory.try_woken()
    assert [correlation_id for correlation_id, _ in talk.replies()] == [1, 2]
    assert talk.dispatch.dirty == [talk.session]


def test_a_request_that_mutes_lets_nothing_in_until_it_is_answered():
    gate = Gate()
    talk = Conversation(
        {
            metadata: answer_metadata,
            find_coordinator: lambda owner, request, call: gate.wait(
                find_coordinator.FindCoordinatorResponse(), mutes=True
            ),
        }
    )
    first = frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g", correlation_id=1)
    second = frame(METADATA, 1, pack(">i", -1), correlation_id=2)
    assert talk.send(first + second) == len(first)
    gate.open = True
    talk.purgatory.wake(gate)
    talk.purgatory.try_woken()
    assert talk.dispatch.resumed == [talk.session]
    assert talk.send(second) == len(second)
    assert [correlation_id for correlation_id, _ in talk.replies()] == [1, 2]


def test_requests_in_line_are_bounded():
    gate = Gate()
    talk = Conversation(
        {
            find_coordinator: lambda owner, request, call: gate.wait(
                find_coordinator.FindCoordinatorResponse()
            )
        }
    )
    one = frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g")
    taken = talk.send(one * 2 * MOST_REQUESTS_IN_LINE)
    assert taken == len(one) * MOST_REQUESTS_IN_LINE
    assert talk.session.muted == 1


def test_a_connection_is_read_again_when_the_last_reason_to_mute_it_has_ended():
    talk = Conversation({metadata: answer_metadata})
    one = frame(METADATA, 1, pack(">i", -1))
    talk.dispatch.mute(talk.session)
    talk.dispatch.mute(talk.session)
    assert talk.send(one) == 0
    talk.dispatch.unmute(talk.session)
    assert talk.send(one) == 0 and talk.dispatch.resumed == []
    talk.dispatch.unmute(talk.session)
    assert talk.send(one) == len(one) and talk.dispatch.resumed == [talk.session]
    with pytest.raises(AssertionError, match="a reason ends once"):
        talk.dispatch.unmute(talk.session)


def test_replies_that_nobody_takes_stop_the_reading():
    big = "x" * 30_000

    def answer(owner, request, call):
        return metadata.MetadataResponse(cluster_id=big)

    talk = Conversation({metadata: answer})
    one = frame(METADATA, 2, pack(">i", -1))
    taken = talk.send(one * 1000)
    assert taken < len(one) * 1000
    assert talk.session.owed < MOST_BYTES_OWED + 2 * len(big)


@pytest.mark.parametrize(
    "data",
    [
        pack(">iI", -1, METADATA << 16),
        pack(">iI", 9, METADATA << 16),
        pack(">iI", 2**31 - 1, METADATA << 16),
        pack(">iI", 100, METADATA << 16 | 99),  # a version that is not served
        pack(">iI", 100, 999 << 16),  # an API that is not served
    ],
)
def test_eight_bytes_are_enough_to_refuse(data):
    talk = Conversation({metadata: answer_metadata})
    with pytest.raises(ClosesConnection):
        talk.send(data)


@pytest.mark.parametrize("body", [b"", b"\0", pack(">i", 2**31 - 1), pack(">ih", 1, 50)])
def test_a_request_that_cannot_be_read_ends_the_connection(body):
    talk = Conversation({metadata: answer_metadata})
    with pytest.raises(ClosesConnection, match="cannot be read"):
        talk.send(frame(METADATA, 1, body))


def test_a_client_id_longer_than_its_frame_ends_the_connection():
    talk = Conversation({metadata: answer_metadata})
    payload = pack(">hhih", METADATA, 1, 7, 500) + b"me"
    with pytest.raises(ClosesConnection, match="client id"):
        talk.send(pack(">i", len(payload)) + payload)


def test_a_bug_in_a_handler_ends_that_connection_and_says_which_request(caplog):
    def answer(owner, request, call):
        raise ZeroDivisionError

    talk = Conversation({metadata: answer})
    with pytest.raises(ClosesConnection):
        talk.send(frame(METADATA, 1, pack(">i", -1)))
    assert "Metadata v1 from 127.0.0.1 failed" in caplog.text


def test_an_answer_that_cannot_be_written_ends_that_connection_only(caplog):
    def answer(owner, request, call):
        no_text: Any = object()
        return metadata.MetadataResponse(cluster_id=no_text)

    talk = Conversation({metadata: answer})
    with pytest.raises(ClosesConnection):
        talk.send(frame(METADATA, 2, pack(">i", -1)))
    assert "Metadata v2 from 127.0.0.1 failed" in caplog.text


@pytest.mark.parametrize("answer", [ZeroDivisionError(), "not a response"])
def test_a_bug_in_a_waiting_request_ends_that_connection_only(answer):
    gate = Gate()

    def attempt(expired):
        if isinstance(answer, Exception):
            raise answer
        return answer

    talk = Conversation(
        {
            find_coordinator: lambda owner, request, call: WaitingRequest(
                attempt, deadline_ms=1000, hangs_on=[gate]
            )
        }
    )
    talk.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g"))
    talk.purgatory.wake(gate)
    talk.purgatory.try_woken()
    assert [session for session, _ in talk.dispatch.failed] == [talk.session]
    assert talk.purgatory.waiting == 0


@pytest.mark.parametrize("size", [-1, 0, 1, 9])
def test_a_length_that_cannot_be_is_refused_before_anything_follows(size):
    talk = Conversation({metadata: answer_metadata})
    with pytest.raises(ClosesConnection):
        talk.send(pack(">i", size))


def test_a_refusal_becomes_the_error_code_of_the_answer():
    def answer(owner, request, call):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    talk = Conversation({find_coordinator: answer})
    talk.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g"))
    [(_, body)] = talk.replies()
    assert body[:2] == pack(">h", ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_api_versions_of_the_future_is_answered_in_version_0():
    def answer(owner, request, call):
        return api_versions.ApiVersionsResponse(
            0, [api_versions.ApiVersion(18, 0, 4), api_versions.ApiVersion(3, 0, 13)]
        )

    talk = Conversation({api_versions: answer})
    talk.send(frame(API_VERSIONS, 77, b"whatever comes", correlation_id=9))
    [(correlation_id, body)] = talk.replies()
    assert correlation_id == 9
    # UNSUPPORTED_VERSION, and the one line that helps the client to ask again
    assert body == pack(">hihhh", 35, 1, 18, 0, 4)


def test_a_connection_that_goes_leaves_nothing_waiting():
    gate = Gate()
    talk = Conversation(
        {
            find_coordinator: lambda owner, request, call: gate.wait(
                find_coordinator.FindCoordinatorResponse()
            )
        }
    )
    talk.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g"))
    talk.dispatch.forget(talk.session)
    assert not gate.waiting and talk.purgatory.waiting == 0


def test_answers_behind_one_that_waits_stop_the_reading():
    """By their number, or by their bytes; and it goes on when they could leave."""
    for cluster_id, most in (("x", MOST_REQUESTS_IN_LINE), ("x" * 30_000, 40)):
        gate = Gate()
        talk = Conversation(
            {
                find_coordinator: lambda owner, request, call, gate=gate: gate.wait(
                    find_coordinator.FindCoordinatorResponse()
                ),
                metadata: lambda owner, request, call, said=cluster_id: metadata.MetadataResponse(
                    cluster_id=said
                ),
            }
        )
        talk.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g"))
        one = frame(METADATA, 2, pack(">i", -1))
        taken = talk.send(one * 500)
        assert taken <= len(one) * most and talk.session.muted
        gate.open = True
        talk.purgatory.wake(gate)
        talk.purgatory.try_woken()
        assert not talk.session.muted and talk.dispatch.resumed == [talk.session]
        assert talk.session.line_bytes == 0 and not talk.session.line
        assert len(talk.replies()) == 1 + taken // len(one)
