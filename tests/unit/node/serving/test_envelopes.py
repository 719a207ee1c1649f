"""What a broker hands on to the controller is answered there as its own client's."""

import pytest

from headrace.environment import Now
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.envelopes import API, Envelopes, disclose, enclose
from headrace.node.serving.principal import Principal
from headrace.node.serving.route import Route
from headrace.node.serving.session import Session
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.framing import REQUEST_HEAD, encode_request
from headrace.wire.protocol.messages import create_topics, envelope, metadata
from headrace.wire.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

ALICE = Principal("User", "alice")
VERSION = 7


class Controller:
    """Says in the answer who has asked, from where, and what."""

    def __init__(self, answer=None):
        self.answer = answer

    def handle(self, request, call):
        session = call.session
        said = f"{session.principal} {session.client_host} {call.client_id()} {request.topics}"
        response = CreateTopicsResponse(0, [CreatableTopicResult("said", error_message=said)])
        return response if self.answer is None else self.answer(response)


def create_topics_api(controller):
    return Api(
        create_topics,
        lambda _, request, call: controller.handle(request, call),
        create_topics.VERSIONS,
        owner="controller",
    )


def a_call(request=None, principal=ALICE, host="10.1.2.3", version=VERSION):
    session = Session(host, "PLAINTEXT")
    session.principal = principal
    pieces = encode_request(create_topics, version, 4711, "app", request or CreateTopicsRequest())
    frame = b"".join(bytes(piece) for piece in pieces)[4:]
    return Call(Now(0, 0), version, memoryview(frame), session, 4711)


def envelopes(controller, authorizer=None):
    api = create_topics_api(controller)
    return Envelopes([Route(api, version, None) for version in api.versions], authorizer)


def answer_to(request, opened, principal=None):
    """Through the codec of Envelope, as on the wire; steps are run to the end."""
    pieces = []
    envelope.ENCODE_REQUEST[0](request, pieces.append)
    request, _ = envelope.DECODE_REQUEST[0](memoryview(b"".join(pieces)), 0)
    call = a_call(principal=principal or Principal("User", "broker"))
    steps = API.handle(opened, request, call)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize("version", create_topics.VERSIONS)
def test_the_controller_sees_the_client_itself(version):
    request = CreateTopicsRequest(topics=[], timeout_ms=1)
    enclosed = enclose(a_call(request, version=version))
    answer = answer_to(enclosed, envelopes(Controller()))
    (said,) = disclose(create_topics, version, answer).topics
    assert said.error_message == "User:alice 10.1.2.3 app []"


def test_an_answer_that_comes_later_is_sealed_when_it_comes():
    waiting = WaitingRequest(
        lambda expired: response if expired else None, deadline_ms=1, hangs_on=[]
    )
    response = CreateTopicsResponse(0, [CreatableTopicResult("late")])
    enclosed = enclose(a_call())
    found = answer_to(enclosed, envelopes(Controller(answer=lambda _: waiting)))
    assert found is waiting and found.attempt(False) is None
    (said,) = disclose(create_topics, VERSION, found.attempt(True)).topics
    assert said.name == "late"


def test_only_a_node_may_send_envelopes():
    """Else anybody could be anybody."""
    guarded = Authorizer(["User:broker"])
    enclosed = enclose(a_call())
    assert answer_to(enclosed, envelopes(Controller(), guarded)).error_code == ErrorCode.NONE
    with pytest.raises(KafkaError) as refusal:
        answer_to(enclosed, envelopes(Controller(), guarded), principal=ALICE)
    assert refusal.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_controller_that_is_not_active_does_not_look_inside():
    api = create_topics_api(Controller())
    opened = Envelopes([Route(api, VERSION, None)], None, is_active=lambda: False)
    with pytest.raises(KafkaError) as refusal:
        answer_to(enclose(a_call()), opened)
    assert refusal.value.code == ErrorCode.NOT_CONTROLLER


def test_a_controller_that_is_deposed_meanwhile_says_so_of_the_envelope():
    def deposed(expired):
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    waiting = WaitingRequest(deposed, deadline_ms=1, hangs_on=[])
    found = answer_to(enclose(a_call()), envelopes(Controller(answer=lambda _: waiting)))
    with pytest.raises(KafkaError) as refusal:
        found.attempt(False)
    assert refusal.value.code == ErrorCode.NOT_CONTROLLER


def changed(**fields):
    request = enclose(a_call())
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def of_another_api():
    head = REQUEST_HEAD.pack(metadata.API_KEY, 12, 1, 0)
    return changed(request_data=head + b"\0" * 20)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (changed(request_data=b""), ErrorCode.INVALID_REQUEST),
        (changed(request_data=b"\0\x13\0\x07"), ErrorCode.INVALID_REQUEST),
        (of_another_api(), ErrorCode.INVALID_REQUEST),
        (changed(client_host_address=b"\1\2"), ErrorCode.INVALID_REQUEST),
        (changed(request_principal=b"\0\1abc"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (changed(request_principal=b"\0\0\x7f"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (changed(request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ],
)
def test_what_makes_no_sense_is_refused(request_, code):
    with pytest.raises(KafkaError) as refusal:
        answer_to(request_, envelopes(Controller()))
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
        (
            EnvelopeResponse(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (EnvelopeResponse(None), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(None, 30_000), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(b"\0\0\0\1"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_envelope_that_comes_back_empty_is_a_refusal(answer, code):
    with pytest.raises(KafkaError) as refusal:
        disclose(create_topics, VERSION, answer)
    assert refusal.value.code == code


def test_what_is_inside_is_the_request_as_it_came():
    request = enclose(a_call(CreateTopicsRequest(timeout_ms=5)))
    api_key, version, number, length = REQUEST_HEAD.unpack_from(request.request_data)
    assert (api_key, version, number, length) == (create_topics.API_KEY, VERSION, 4711, 3)
    assert isinstance(request, EnvelopeRequest) and request.client_host_address == b"\x0a\1\2\3"
