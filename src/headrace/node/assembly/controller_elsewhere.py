"""The controller in another process, as the broker sees it (`broker/cluster/controller_port.py`).

Requests go to the active controller over `environment.Peers`, each kind on a lane of its own, so
that a heartbeat never waits behind the creation of a topic. The client is answered that a resource
was created only when this broker's own metadata has it, since the client asks this broker next.
While there is no active controller a request is retried until its deadline. Then the client gets
the error for a topic or a coordinator that does not exist yet, and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from headrace.environment import Address, Now, Peers
from headrace.node.broker.cluster.controller_channel import ControllerChannel
from headrace.node.broker.cluster.controller_port import refused_topics
from headrace.node.metadata.image import MetadataImage
from headrace.node.replication.this_broker import ThisBroker
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.node.steps import Steps
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    broker_heartbeat,
    broker_registration,
    create_topics,
)
from headrace.wire.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from headrace.wire.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from headrace.wire.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from headrace.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

# How long a client waits for a topic or an id before it gets a retriable error; clients give up a
# request after 30 s themselves.
PATIENCE_MS = 15_000
NOT_IN_TIME = "the controller has not answered in time"
# A leader proposes its in-sync replicas again by itself.
ALTER_PARTITION_TIMEOUT_MS = 5_000
# Several heartbeats are tried within one session.
TRIES_PER_SESSION = 4


class FollowsMetadata(Protocol):
    """The broker."""

    image: MetadataImage
    this: ThisBroker

    @property
    def applied_offset(self) -> int: ...


class Outcome:
    """The outcome of a request, for the client requests that wait for it."""

    __slots__ = ("waiting", "answer", "is_over")

    def __init__(self) -> None:
        self.waiting: dict[WaitingRequest, None] = {}
        self.answer: Any = None
        self.is_over = False


class ControllerElsewhere:
    def __init__(
        self,
        peers: Peers,
        controller: Callable[[], Address | None],
        purgatory: Purgatory,
        now: Now,
        *,
        session_timeout_ms: int = 9_000,
    ) -> None:
        """`controller` is where the active one listens, as far as this node knows. `broker` is to
        be set before anything is asked."""
        self.broker: FollowsMetadata
        self._purgatory = purgatory
        self._heartbeat_timeout_ms = max(session_timeout_ms // TRIES_PER_SESSION, 1)
        self._admin, self._changes, self._life = (
            ControllerChannel(peers, controller, purgatory, now, lane)
            for lane in ("controller", "alter-partition", "heartbeat")
        )
        self._making: dict[str, Outcome] = {}  # topics, by name
        self._unseen: dict[Outcome, set[str]] = {}  # made, and not in this broker's metadata yet

    # For the node

    def controller_moved(self) -> None:
        self._admin.moved()

    def metadata_applied(self) -> None:
        """The broker has applied more metadata: answer the requests that wait for it."""
        for outcome, names in list(self._unseen.items()):
            if not outcome.waiting or self._has(names):
                del self._unseen[outcome]
                self._end(outcome)

    # For the broker

    def create_topics(self, names: list[str], answer: Callable[[], Any], now: Now) -> Any:
        topics = [CreatableTopic(name, num_partitions=-1, replication_factor=-1) for name in names]
        return self._create(topics, answer, now)

    def create_topics_in_slices(
        self, names: list[str], answer: Callable[[], Any], now: Now
    ) -> Steps:
        yield
        return self.create_topics(names, answer, now)

    def create_internal_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        answer: Callable[[], Any],
        now: Now,
    ) -> Any:
        configs = [CreatableTopicConfig(name, value) for name, value in settings.items()]
        return self._create(
            [CreatableTopic(name, partitions, replicas, configs=configs)], answer, now
        )

    def create_described_topics(
        self, topics: list[CreatableTopic], answer: Callable[[Mapping[str, str]], Any], now: Now
    ) -> Any:
        names = {topic.name for topic in topics}

        def answer_with_reasons(outcomes: list[Outcome]) -> Any:
            reasons = {name: NOT_IN_TIME for each in outcomes if not each.is_over for name in names}
            for outcome in outcomes:
                if outcome.answer is not None:
                    reasons |= refused_topics(outcome.answer)
            there = self.broker.image.topics
            return answer({name: reasons[name] for name in names & reasons.keys() - there.keys()})

        return self._create_and(topics, answer_with_reasons, now)

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any:
        outcome = Outcome()

        def answered(response: AllocateProducerIdsResponse | None) -> None:
            outcome.answer = response
            self._end(outcome)

        def attempt(expired: bool) -> Any | None:
            if not outcome.is_over and not expired:
                return None
            block = outcome.answer
            if block is None or block.error_code:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no new producer ids now")
            return answer(block.producer_id_start, block.producer_id_len)

        this = self.broker.this
        self._admin.ask(
            allocate_producer_ids,
            AllocateProducerIdsRequest(this.id, this.epoch),
            answered,
            is_answer=_is_from_the_controller,
            timeout_ms=PATIENCE_MS,
        )
        deadline_ms = now.monotonic_ms + PATIENCE_MS
        return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[outcome])

    def alter_partition(
        self,
        request: AlterPartitionRequest,
        answered: Callable[[AlterPartitionResponse | None], None],
        now: Now,
    ) -> None:
        self._changes.ask_once(
            alter_partition, request, answered, timeout_ms=ALTER_PARTITION_TIMEOUT_MS
        )

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        answered: Callable[[BrokerRegistrationResponse | None], None],
        now: Now,
    ) -> None:
        timeout_ms = self._heartbeat_timeout_ms
        self._life.ask_once(broker_registration, request, answered, timeout_ms=timeout_ms)

    def heartbeat(
        self,
        request: BrokerHeartbeatRequest,
        answered: Callable[[BrokerHeartbeatResponse | None], None],
        now: Now,
    ) -> None:
        timeout_ms = self._heartbeat_timeout_ms
        self._life.ask_once(broker_heartbeat, request, answered, timeout_ms=timeout_ms)

    # Topics

    def _create(
        self, topics: list[CreatableTopic], answer: Callable[[], Any], now: Now
    ) -> WaitingRequest:
        return self._create_and(topics, lambda outcomes: answer(), now)

    def _create_and(
        self, topics: list[CreatableTopic], answer: Callable[[list[Outcome]], Any], now: Now
    ) -> WaitingRequest:
        """Returns a request that waits until each topic is created. Sends one creation request per
        topic, also if several clients wait for the same topic."""
        new = [topic for topic in topics if topic.name not in self._making]
        if new:
            self._ask_for(new)
        outcomes = list(dict.fromkeys(self._making[topic.name] for topic in topics))

        def attempt(expired: bool) -> Any | None:
            is_over = expired or all(each.is_over for each in outcomes)
            return answer(outcomes) if is_over else None

        deadline_ms = now.monotonic_ms + PATIENCE_MS
        return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[*outcomes])

    def _ask_for(self, topics: list[CreatableTopic]) -> None:
        outcome = Outcome()
        names = {topic.name for topic in topics}
        for name in names:
            self._making[name] = outcome

        def answered(response: CreateTopicsResponse | None) -> None:
            for name in names:
                del self._making[name]
            outcome.answer = response
            made = set() if response is None else _names_that_exist(response)
            if self._has(made):
                self._end(outcome)
            else:
                self._unseen[outcome] = made

        self._admin.ask(
            create_topics,
            CreateTopicsRequest(topics, PATIENCE_MS),
            answered,
            is_answer=_is_from_an_active_controller,
            timeout_ms=PATIENCE_MS,
        )

    def _has(self, names: set[str]) -> bool:
        """This broker knows the topics and has its replicas of them."""
        broker = self.broker
        known = all(name in broker.image.topics for name in names)
        return known and (not names or broker.applied_offset >= broker.image.offset)

    def _end(self, outcome: Outcome) -> None:
        outcome.is_over = True
        self._purgatory.wake(outcome)


def _names_that_exist(response: CreateTopicsResponse) -> set[str]:
    there = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return {topic.name for topic in response.topics if topic.error_code in there}


def _is_from_an_active_controller(response: CreateTopicsResponse) -> bool:
    return all(topic.error_code != ErrorCode.NOT_CONTROLLER for topic in response.topics)


def _is_from_the_controller(response: AllocateProducerIdsResponse) -> bool:
    return response.error_code != ErrorCode.NOT_CONTROLLER
