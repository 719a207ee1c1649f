"""Access to the state of share partitions, for the brokers that lead them.

A request is for one share partition and is answered by its PartitionResult, once. The coordinator
is this broker, which is asked at once, or another, which is asked by the API of the same name: one
request for each group is in flight to a broker, and what comes meanwhile goes together in the next.
Requests of one share partition run one after the other, in the order of the calls.

A coordinator that moves, loads, is not there yet or does not answer is asked again, until
`request.timeout.ms` is over; then the answer has its code. A write that was carried out and not
answered is written again, which changes nothing: see `state_batches.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.broker.cluster.broker_requests import BrokerRequests, code_of
from headrace.node.broker.coordinators.share_states import SHARE_STATE_TOPIC, ShareCoordinator
from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.node.coordination.share.state_machine import ShareStateMachine
from headrace.node.metadata.image import NO_LEADER
from headrace.node.serving.api import WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.java_hash import partition_for_group
from headrace.wire.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

if TYPE_CHECKING:
    from headrace.node.broker.broker import Broker

LANE = "share-state"
REST_MS = 100  # before a coordinator that is not ready is asked again
ASK_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)

Reply = Callable[[Any], None]


@dataclass(slots=True, frozen=True)
class StateApi:
    """One of the five APIs of the state, and how the coordinator of this broker is asked."""

    messages: ModuleType
    request: type[Any]
    topic: type[Any]
    response: type[Any]
    result: type[Any]
    ask: Callable[[Broker, SharePartitionKey, Any, Now], Any]


def _read(broker: Broker, key: SharePartitionKey, data: Any, now: Now) -> Any:
    return broker.share_states.here.read_state(key, data.leader_epoch, now)


def _write(broker: Broker, key: SharePartitionKey, data: Any, now: Now) -> Any:
    return broker.share_states.here.change(key, now, ShareStateMachine.write, data)


def _initialize(broker: Broker, key: SharePartitionKey, data: Any, now: Now) -> Any:
    return broker.share_states.here.change(key, now, ShareStateMachine.initialize, data)


def _delete(broker: Broker, key: SharePartitionKey, data: Any, now: Now) -> Any:
    return broker.share_states.here.ask(key.text, now, ShareStateMachine.delete, key)


def _summary(broker: Broker, key: SharePartitionKey, data: Any, now: Now) -> Any:
    return broker.share_states.here.read(key.text, now, ShareStateMachine.summary, key)


READ = StateApi(
    read_share_group_state,
    read_share_group_state.ReadShareGroupStateRequest,
    read_share_group_state.ReadStateData,
    read_share_group_state.ReadShareGroupStateResponse,
    read_share_group_state.ReadStateResult,
    _read,
)
WRITE = StateApi(
    write_share_group_state,
    write_share_group_state.WriteShareGroupStateRequest,
    write_share_group_state.WriteStateData,
    write_share_group_state.WriteShareGroupStateResponse,
    write_share_group_state.WriteStateResult,
    _write,
)
INITIALIZE = StateApi(
    initialize_share_group_state,
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
    initialize_share_group_state.InitializeShareGroupStateResponse,
    initialize_share_group_state.InitializeStateResult,
    _initialize,
)
DELETE = StateApi(
    delete_share_group_state,
    delete_share_group_state.DeleteShareGroupStateRequest,
    delete_share_group_state.DeleteStateData,
    delete_share_group_state.DeleteShareGroupStateResponse,
    delete_share_group_state.DeleteStateResult,
    _delete,
)
SUMMARY = StateApi(
    read_share_group_state_summary,
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
    read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary.ReadStateSummaryResult,
    _summary,
)


@dataclass(slots=True, eq=False)
class StateRequest:
    """A request for one share partition; `data` is its PartitionData."""

    api: StateApi
    key: SharePartitionKey
    data: Any
    reply: Reply
    deadline_ms: int
    again_ms: int = 0


class ShareStateAccess:
    __slots__ = ("here", "_broker", "_queues", "_resting", "_elsewhere", "_makes_topic")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.here = ShareCoordinator(broker)  # the state that this broker keeps
        # By share partition: the first request is under way.
        self._queues: dict[SharePartitionKey, deque[StateRequest]] = {}
        self._resting: list[StateRequest] = []  # retried later
        # By API key and group.
        self._elsewhere: dict[tuple[int, str], BrokerRequests[StateRequest]] = {}
        self._makes_topic = False

    # --- the five requests; `reply` gets the PartitionResult of the response, maybe at once

    def read(self, key: SharePartitionKey, leader_epoch: int, reply: Reply) -> None:
        data = read_share_group_state.PartitionData(key.partition, leader_epoch)
        self._add(READ, key, data, reply)

    def write(
        self, key: SharePartitionKey, data: write_share_group_state.PartitionData, reply: Reply
    ) -> None:
        self._add(WRITE, key, data, reply)

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Reply
    ) -> None:
        data = initialize_share_group_state.PartitionData(key.partition, state_epoch, start_offset)
        self._add(INITIALIZE, key, data, reply)

    def delete(self, key: SharePartitionKey, reply: Reply) -> None:
        self._add(DELETE, key, delete_share_group_state.PartitionData(key.partition), reply)

    def summary(self, key: SharePartitionKey, leader_epoch: int, reply: Reply) -> None:
        data = read_share_group_state_summary.PartitionData(key.partition, leader_epoch)
        self._add(SUMMARY, key, data, reply)

    def _add(self, api: StateApi, key: SharePartitionKey, data: Any, reply: Reply) -> None:
        broker = self._broker
        deadline_ms = broker.now.monotonic_ms + broker.values["request.timeout.ms"]
        request = StateRequest(api, key, data, reply, deadline_ms)
        queue = self._queues.setdefault(key, deque())
        queue.append(request)
        if len(queue) == 1:
            self._ask(request)

    # --- where it is asked

    def _ask(self, request: StateRequest) -> None:
        broker = self._broker
        topic = broker.image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            self._make_topic()
            self._rest(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        index = partition_for_group(request.key.text, len(topic.partitions))
        leader = topic.partitions[index].leader
        if leader == broker.node_id:
            self._ask_here(request)
        elif leader == NO_LEADER:
            self._rest(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._requests_of(request).add(leader, request)
            self._requests_of(request).send()

    def _ask_here(self, request: StateRequest) -> None:
        broker = self._broker
        try:
            answer = request.api.ask(broker, request.key, request.data, broker.now)
        except KafkaError as refusal:
            self._refused(request, refusal)
            return
        if isinstance(answer, WaitingRequest):
            answer.complete = lambda found: self._completed(request, found)
            broker.purgatory.add(answer)
        else:
            self._answered(request, answer)

    def _completed(self, request: StateRequest, found: Any) -> None:
        if isinstance(found, KafkaError):
            self._refused(request, found)
        elif isinstance(found, Exception):
            raise found
        else:
            self._answered(request, found)

    def _refused(self, request: StateRequest, refusal: KafkaError) -> None:
        self._answered(request, _result(request, refusal.code, refusal.message))

    def _requests_of(self, request: StateRequest) -> BrokerRequests[StateRequest]:
        api = request.api
        key = api.messages.API_KEY, request.key.group_id
        found = self._elsewhere.get(key)
        if found is None:
            found = self._elsewhere[key] = BrokerRequests(
                self._broker,
                LANE,
                api.messages,
                request_of,
                self._answered_elsewhere,
            )
        return found

    def _answered_elsewhere(self, requests: list[StateRequest], answer: Any) -> None:
        found = {
            (result.topic_id, part.partition): part
            for result in (() if answer is None else answer.results)
            for part in result.partitions
        }
        for request in requests:
            part = found.get((request.key.topic_id, request.key.partition))
            if part is None:
                part = _result(request, ErrorCode.NETWORK_EXCEPTION, None)
            self._answered(request, part)

    def _make_topic(self) -> None:
        """Create the coordinator's topic when the first request needs it; requests wait
        meanwhile."""
        broker = self._broker
        if self._makes_topic:
            return
        partitions, replicas, settings = broker.share_states.here.topic_rules()
        registered = len(broker.image.brokers)
        if replicas > max(registered, 1):
            broker.share_states.here.say_why_not(replicas, registered, broker.now)
            return
        self._makes_topic = True
        try:
            made = broker.controller.create_internal_topic(
                SHARE_STATE_TOPIC, partitions, replicas, settings, lambda: True, broker.now
            )
        except KafkaError:
            self._makes_topic = False
            return
        if isinstance(made, WaitingRequest):
            made.complete = self._topic_made
            broker.purgatory.add(made)
        else:
            self._topic_made(made)

    def _topic_made(self, _: Any) -> None:
        self._makes_topic = False

    def forget_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Delete the states of deleted topics; groups delete their part themselves."""
        self.here.forget_topics(topic_ids)
        self._broker.groups.forget_shared_topics(topic_ids)

    # --- answers

    def _answered(self, request: StateRequest, result: Any) -> None:
        code = code_of(result.error_code)
        if code in ASK_AGAIN and self._broker.now.monotonic_ms < request.deadline_ms:
            self._rest(request, code)
            return
        queue = self._queues[request.key]
        assert queue[0] is request, "requests of one share partition run one after the other"
        try:
            request.reply(result)  # may add another request of this key, which waits
        finally:
            queue.popleft()
            if queue:
                self._ask(queue[0])
            else:
                del self._queues[request.key]

    def _rest(self, request: StateRequest, code: ErrorCode) -> None:
        now_ms = self._broker.now.monotonic_ms
        if now_ms >= request.deadline_ms:
            self._answered(request, _result(request, code, None))
            return
        request.again_ms = now_ms + REST_MS
        self._resting.append(request)

    def tick(self, now: Now) -> None:
        """Send requests again, and give up on brokers that are gone."""
        for requests in list(self._elsewhere.values()):
            requests.tick()
        self._elsewhere = {key: one for key, one in self._elsewhere.items() if one.is_busy}
        if self._resting:
            due = [one for one in self._resting if one.again_ms <= now.monotonic_ms]
            self._resting = [one for one in self._resting if one.again_ms > now.monotonic_ms]
            for request in due:
                self._ask(request)


def request_of(requests: list[StateRequest]) -> Any:
    """All are of one API and one group, and name different share partitions."""
    api = requests[0].api
    topics: dict[bytes, list[Any]] = {}
    for request in requests:
        topics.setdefault(request.key.topic_id, []).append(request.data)
    return api.request(
        requests[0].key.group_id, [api.topic(topic, parts) for topic, parts in topics.items()]
    )


def _result(request: StateRequest, code: ErrorCode, message: str | None) -> Any:
    return request.api.messages.PartitionResult(
        partition=request.key.partition,
        error_code=code,
        error_message=message or code.description,
    )
