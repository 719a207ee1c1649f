"""Requests for the controller find the active one, by any broker and only by the right door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace.wire.protocol
from headrace.environment import Address, Now
from headrace.node.assembly.controller_routing import NOT_CONTROLLER, ControllerRouting
from headrace.node.assembly.served import (
    FOR_CONTROLLERS,
    NOT_FOR_CLIENTS,
    for_clients,
    for_controllers,
    lines_of,
    not_on,
    served_apis,
)
from headrace.node.broker.cluster.controller_channel import ControllerChannel
from headrace.node.broker.cluster.forwarding import Forwarding
from headrace.node.controller.handlers import HANDLERS
from headrace.node.controller.refusals import REFUSALS
from headrace.node.serving.api import Api, Call, ClosesConnection, WaitingRequest
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.dispatch import Dispatch
from headrace.node.serving.principal import ANONYMOUS, Principal
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.route import Route
from headrace.node.serving.session import Session
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import (
    broker_heartbeat,
    create_topics,
    describe_groups,
    envelope,
)
from headrace.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.unit.node.broker.cluster.remote_controller import LISTENER, RemoteController

DEFINITIONS = Path(headrace.wire.protocol.__file__).parent / "definitions" / "rpc"
FETCH = 1
DELEGATION_TOKENS = {38, 39, 40, 41}
QUORUM = {52, 53, 54, 59, 80, 81, 82}
ALICE, MALLORY = Principal("User", "alice"), Principal("User", "mallory")
BROKER = Principal("User", "broker")


class AnotherBroker:
    """Its own controller is not the active one; clients come by PLAINTEXT."""

    def __init__(self, controller: RemoteController) -> None:
        self.controller = controller
        purgatory, now = controller.purgatory, controller.now
        channel = ControllerChannel(
            controller, lambda: controller.place, purgatory, now, "forwarding"
        )
        forwarding = Forwarding(channel, purgatory, now)
        routing = ControllerRouting(frozenset(), lambda: False, forwarding, purgatory)
        routes = [
            Route(api, version, None)
            for api in served_apis([], routing)
            if api.owner == "controller"
            for version in api.versions
        ]
        self.dispatch = Dispatch(routes, purgatory, now, max_frame=1 << 20)

    def asks(self, request: Any, principal: Principal = ANONYMOUS, version: int = 7) -> Asked:
        session = Session("10.9.9.9", "PLAINTEXT")
        session.principal = principal
        send(self.dispatch, session, create_topics, version, request)
        self.controller.until_idle()
        return Asked(session, version)


class Asked:
    """A client that waits for the answer to its CreateTopics."""

    def __init__(self, session: Session, version: int) -> None:
        self.session, self.version = session, version

    @property
    def codes(self) -> list[ErrorCode] | None:
        if not self.session.outbox:
            return None
        answer = reply_on(self.session, create_topics, self.version)
        return [ErrorCode(topic.error_code) for topic in answer.topics]


def send(dispatch: Dispatch, session: Session, messages: Any, version: int, request: Any) -> None:
    pieces = encode_request(messages, version, 7, "app", request)
    data = b"".join(bytes(piece) for piece in pieces)
    assert dispatch.feed(session, memoryview(data), len(data)) == len(data)


def reply_on(session: Session, messages: Any, version: int) -> Any:
    reply = b"".join(bytes(piece) for piece in session.outbox)  # type: ignore[arg-type]
    return decode_response(messages, version, memoryview(reply)[4:])[1]


def topics(*names: str, timeout_ms: int = 10_000) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names], timeout_ms)


@pytest.mark.parametrize("version", create_topics.VERSIONS)
def test_a_topic_is_created_by_a_client_of_another_broker(tmp_path: Path, version: int) -> None:
    controller = RemoteController(tmp_path)
    asked = AnotherBroker(controller).asks(topics("orders"), version=version)
    assert asked.codes == [ErrorCode.NONE]
    assert "orders" in controller.image.topics


def test_the_controller_asks_for_the_clients_own_rights(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path, Authorizer(["User:broker", "User:alice"]))
    controller.brokers_principal = BROKER
    broker = AnotherBroker(controller)
    assert broker.asks(topics("orders"), ALICE).codes == [ErrorCode.NONE]
    assert broker.asks(topics("mine"), MALLORY).codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_a_broker_without_cluster_action_can_hand_nothing_on(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path, Authorizer(["User:alice"]))
    controller.brokers_principal = MALLORY
    asked = AnotherBroker(controller).asks(topics("orders"), ALICE)
    assert asked.codes == [ErrorCode.UNKNOWN_SERVER_ERROR], "nothing that alice could mend"
    assert "orders" not in controller.image.topics


def test_without_a_controller_each_topic_is_told_that_time_is_up(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    controller.place = None
    asked = AnotherBroker(controller).asks(topics("orders", "payments", timeout_ms=1_000))
    controller.passes(900)
    assert asked.codes is None
    controller.passes(200)
    assert asked.codes == [ErrorCode.REQUEST_TIMED_OUT] * 2


def test_the_request_waits_for_the_next_controller(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    controller.is_active = False
    asked = AnotherBroker(controller).asks(topics("orders"))
    controller.passes(1_000)
    assert asked.codes is None, "the envelope comes back with NOT_CONTROLLER"
    controller.is_active = True
    controller.passes(200)
    assert asked.codes == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("messages", "request_"),
    [
        (create_topics, topics("orders")),
        (broker_heartbeat, broker_heartbeat.BrokerHeartbeatRequest(1, 1, 1)),
        (envelope, envelope.EnvelopeRequest()),
    ],
)
def test_other_nodes_are_told_that_this_is_not_the_active_controller(
    tmp_path: Path, messages: Any, request_: Any
) -> None:
    controller = RemoteController(tmp_path)
    controller.is_active = False
    session = Session("10.0.0.2", LISTENER)
    version = messages.VERSIONS[-1]
    controller.send(session, messages, version, request_)
    controller.until_idle()
    answer = reply_on(session, messages, version)
    said = answer.topics[0] if messages is create_topics else answer
    assert said.error_code == ErrorCode.NOT_CONTROLLER


# A controller that is deposed while a request waits


class Deposed:
    """One node: its controller decides, loses its leadership, and another is found."""

    def __init__(self, *, in_slices: bool = False) -> None:
        self.now, self.purgatory = Now(0, 0), Purgatory()
        self.is_active = True
        self.forwarded: list[Any] = []
        self.pending: dict[WaitingRequest, None] = {}
        self.waiting = self.pending
        channel = ControllerChannel(
            self, lambda: Address("next", 9093), self.purgatory, self.now, "forwarding"
        )
        routing = ControllerRouting(
            frozenset({LISTENER}),
            lambda: self.is_active,
            Forwarding(channel, self.purgatory, self.now),
            self.purgatory,
        )

        def decides(owner: Any, request: Any, call: Call) -> Any:
            request.topics = request.topics[1:]  # as handlers take out what is denied
            return WaitingRequest(self.attempt, deadline_ms=10_000, hangs_on=[self])

        def decides_in_slices(owner: Any, request: Any, call: Call) -> Any:
            yield
            return decides(owner, request, call)

        api = Api(
            create_topics,
            decides_in_slices if in_slices else decides,
            create_topics.VERSIONS,
            owner="controller",
        )
        self.dispatch = Dispatch(
            [Route(routing.routed(api), 7, None)], self.purgatory, self.now, max_frame=1 << 20
        )

    def attempt(self, expired: bool) -> Any:
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return None

    def ask(self, to: Any, lane: Any, messages: Any, request: Any, answered: Any, **_: Any) -> None:
        self.forwarded.append((request, answered))

    def loses_leadership(self) -> None:
        self.is_active = False
        self.purgatory.wake(self)
        self.purgatory.try_woken()

    def asked(self, listener: str) -> Session:
        session = Session("10.9.9.9", listener)
        send(self.dispatch, session, create_topics, 7, topics("orders", "payments"))
        self.dispatch.long_answers.run(lambda: False)
        return session


@pytest.mark.parametrize("in_slices", [False, True])
def test_a_waiting_client_is_handed_on_as_it_came_when_the_controller_is_deposed(
    in_slices: bool,
) -> None:
    node = Deposed(in_slices=in_slices)
    session = node.asked("PLAINTEXT")
    assert not node.forwarded
    node.loses_leadership()
    [(enclosed, answered)] = node.forwarded
    frame = memoryview(enclosed.request_data)
    handed_on, _ = create_topics.DECODE_REQUEST[7](frame, 10 + len("app") + 1)
    assert [topic.name for topic in handed_on.topics] == ["orders", "payments"]
    answer = create_topics.CreateTopicsResponse(
        topics=[create_topics.CreatableTopicResult(name) for name in ("orders", "payments")]
    )
    handle: Any = send
    [frame_] = Route(Api(create_topics, handle, range(7, 8)), 7, None).frame(7, answer)
    answered(envelope.EnvelopeResponse(bytes(frame_)[4:]))  # type: ignore[arg-type]
    node.purgatory.try_woken()
    node.dispatch.long_answers.run(lambda: False)
    told = reply_on(session, create_topics, 7).topics
    assert [(topic.name, topic.error_code) for topic in told] == [("orders", 0), ("payments", 0)]


def test_a_waiting_node_is_told_when_the_controller_is_deposed() -> None:
    node = Deposed()
    session = node.asked(LISTENER)
    node.loses_leadership()
    assert not node.forwarded
    told = reply_on(session, create_topics, 7).topics
    assert [(topic.name, topic.error_code) for topic in told] == [
        ("orders", ErrorCode.NOT_CONTROLLER),
        ("payments", ErrorCode.NOT_CONTROLLER),
    ]


def test_the_time_that_the_client_gave_counts_from_its_request_on() -> None:
    node = Deposed()
    session = node.asked("PLAINTEXT")
    node.now.monotonic_ms = 9_000
    node.loses_leadership()
    node.now.monotonic_ms = 10_000
    node.purgatory.expire(10_000)
    told = reply_on(session, create_topics, 7).topics
    assert {topic.error_code for topic in told} == {ErrorCode.REQUEST_TIMED_OUT}


# Which door is for whom


class Nowhere:
    def ask(self, *_: Any, **__: Any) -> None:
        raise AssertionError("nothing is asked here")


def routing(*listeners: str) -> ControllerRouting:
    now, purgatory = Now(0, 0), Purgatory()
    channel = ControllerChannel(Nowhere(), lambda: None, purgatory, now, "forwarding")
    forwarding = Forwarding(channel, purgatory, now)
    return ControllerRouting(frozenset(listeners), lambda: True, forwarding, purgatory)


def kafkas(kind: str) -> set[int]:
    found = set()
    for path in DEFINITIONS.glob("*Request.json"):
        definition = json.loads(path.read_text())
        if kind in definition.get("listeners", ()):
            found.add(definition["apiKey"])
    return found


def test_a_controllers_listener_lists_what_kafka_lists() -> None:
    lines = lines_of(served_apis([LISTENER], routing(LISTENER)))
    listed = {line[0] for line in for_controllers(lines)}
    not_served = DELEGATION_TOKENS | (QUORUM - listed)
    assert listed == kafkas("controller") - not_served
    assert kafkas("controller") - kafkas("broker") == NOT_FOR_CLIENTS
    told = {line[0] for line in for_clients(lines)}
    assert not told & NOT_FOR_CLIENTS and told <= kafkas("broker")


def test_a_node_without_a_controllers_listener_serves_nothing_for_nodes() -> None:
    keys = {api.messages.API_KEY for api in served_apis([], routing())}
    assert not keys & NOT_FOR_CLIENTS and 64 in keys, "UnregisterBroker is an operator's"
    alone = {api.messages.API_KEY for api in served_apis([LISTENER])}
    assert not alone & NOT_FOR_CLIENTS and 64 not in alone


@pytest.mark.parametrize(
    "api_key", sorted(NOT_FOR_CLIENTS & {h.messages.API_KEY for h in HANDLERS} | {58})
)
def test_a_client_cannot_talk_as_a_node(api_key: int) -> None:
    [api] = [
        each
        for each in served_apis([LISTENER], routing(LISTENER))
        if api_key == each.messages.API_KEY
    ]
    call = Call(Now(0, 0), 0, memoryview(b""), Session("10.9.9.9", "PLAINTEXT"), 1)
    with pytest.raises(ClosesConnection, match="PLAINTEXT does not serve"):
        api.handle(None, None, call)


def test_a_large_request_is_sent_away_from_a_controllers_listener_too() -> None:
    def handle(owner: Any, request: Any, call: Call) -> None:
        raise AssertionError("not on this listener")

    api = Api(describe_groups, handle, range(0, 1), handle_large=handle)
    limited = not_on(api, frozenset({LISTENER}))
    call = Call(Now(0, 0), 0, memoryview(b""), Session("10.9.9.9", LISTENER), 1)
    for refused in (limited.handle, limited.handle_large):
        assert refused is not None
        with pytest.raises(ClosesConnection):
            refused(None, None, call)
    assert describe_groups.API_KEY not in FOR_CONTROLLERS


@pytest.mark.parametrize("api", HANDLERS, ids=lambda api: api.messages.NAME)
def test_every_request_for_the_controller_can_be_refused_as_a_whole(api: Api) -> None:
    messages = api.messages
    response = getattr(messages, f"{messages.NAME}Response")()
    refuse = REFUSALS.get(messages.API_KEY)
    assert (refuse is None) == hasattr(response, "error_code")
    if refuse is not None:
        request = getattr(messages, f"{messages.NAME}Request")()
        [elements] = [name for name in type(response).__slots__ if name != "throttle_time_ms"]
        assert getattr(refuse(request, NOT_CONTROLLER), elements) == []
