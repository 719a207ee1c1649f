"""The controller in the same process, as the broker sees it (`broker/cluster/controller_port.py`).

No request is sent: decisions are made at once and answered when they are committed. A controller
that is deposed before that refuses the waiting requests; the broker then answers its client with
what exists, or asks the next controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.environment import Now
from headrace.node.broker.cluster.controller_port import refused_topics
from headrace.node.controller.controller import Controller
from headrace.node.controller.handlers.broker_heartbeat import heartbeat
from headrace.node.controller.handlers.broker_registration import register_broker
from headrace.node.controller.partitions.in_sync_changes import alter_partition
from headrace.node.controller.partitions.replica_directories import assign_replicas
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.node.steps import Steps
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
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
)

NEWEST_ALTER_PARTITION = 3
NEWEST_REGISTRATION = 4


class ControllerAtHand:
    """The controller in the same process, as the broker sees it."""

    def __init__(self, controller: Controller, node_id: int, purgatory: Purgatory) -> None:
        self._controller = controller
        self._node_id = node_id
        self._purgatory = purgatory

    def create_topics(self, names: list[str], answer: Callable[[], Any], now: Now) -> Any:
        self._controller.create_topics(_topics_as_configured(names), now)
        return self._when_committed(answer, now, refused=lambda _: answer(), with_files=True)

    def create_topics_in_slices(
        self, names: list[str], answer: Callable[[], Any], now: Now
    ) -> Steps:
        yield from self._controller.create_topics_in_slices(_topics_as_configured(names), now)
        return self._when_committed(answer, now, refused=lambda _: answer(), with_files=True)

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
        topic = CreatableTopic(name, partitions, replicas, configs=configs)
        self._controller.create_topics(CreateTopicsRequest(topics=[topic]), now)
        return self._when_committed(answer, now, refused=lambda _: answer(), with_files=True)

    def create_described_topics(
        self, topics: list[CreatableTopic], answer: Callable[[Mapping[str, str]], Any], now: Now
    ) -> Any:
        response = self._controller.create_topics(CreateTopicsRequest(topics=topics), now)
        reasons = refused_topics(response)

        def late(refusal: KafkaError) -> Any:
            why = refusal.message or refusal.code.description
            return answer({topic.name: why for topic in topics})

        return self._when_committed(lambda: answer(reasons), now, refused=late, with_files=True)

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any:
        controller = self._controller
        block = controller.allocate_producer_ids(self._node_id, controller.broker_epoch, now)
        return self._when_committed(
            lambda: answer(block.first, block.size), now, refused=_no_ids_now
        )

    def alter_partition(
        self,
        request: AlterPartitionRequest,
        answered: Callable[[AlterPartitionResponse | None], None],
        now: Now,
    ) -> None:
        controller = self._controller
        minimum = controller.settings.min_in_sync_replicas
        try:
            decision = alter_partition(controller.image, request, NEWEST_ALTER_PARTITION, minimum)
            controller.append(decision.records, now)
        except KafkaError:
            answered(None)
            return

        self._tell(controller.answer(decision.response, now, late=_nobody_knows), answered)

    def assign_replicas(
        self,
        request: AssignReplicasToDirsRequest,
        answered: Callable[[AssignReplicasToDirsResponse | None], None],
        now: Now,
    ) -> None:
        controller = self._controller
        minimum = controller.settings.min_in_sync_replicas
        try:
            decision = assign_replicas(controller.image, request, minimum)
            controller.append(decision.records, now)
        except KafkaError:
            answered(None)
            return
        self._tell(controller.answer(decision.response, now, late=_nobody_knows), answered)

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        answered: Callable[[BrokerRegistrationResponse | None], None],
        now: Now,
    ) -> None:
        """An earlier registration with this id was this process before its restart."""
        try:
            answer = register_broker(
                self._controller, request, NEWEST_REGISTRATION, now, has_session=False
            )
        except KafkaError as refusal:
            answered(BrokerRegistrationResponse(error_code=refusal.code))
        else:
            self._tell(answer, answered)

    def heartbeat(
        self,
        request: BrokerHeartbeatRequest,
        answered: Callable[[BrokerHeartbeatResponse | None], None],
        now: Now,
    ) -> None:
        try:
            answer = heartbeat(self._controller, request, now)
        except KafkaError as refusal:
            answered(BrokerHeartbeatResponse(error_code=refusal.code))
        else:
            self._tell(answer, answered)

    def _tell(self, answer: Any, answered: Callable[[Any], None]) -> None:
        """Now, or when it is committed; None if the controller was deposed before it was."""
        if not isinstance(answer, WaitingRequest):
            answered(answer)
            return
        answer.complete = lambda found: answered(None if isinstance(found, KafkaError) else found)
        self._purgatory.add(answer)

    def _when_committed(
        self,
        answer: Callable[[], Any],
        now: Now,
        *,
        refused: Callable[[KafkaError], Any],
        with_files: bool = False,
    ) -> Any:
        """Returns `answer` once the decision is committed. `refused` makes the client's answer if
        it is not committed in time, or if this controller was deposed. The decision may be undone
        then, so `refused` may not use any of it."""
        committed = self._controller.answer(True, now, late=_too_late, with_files=with_files)
        if not isinstance(committed, WaitingRequest):
            return answer()
        attempt = committed.attempt

        def attempt_answer(expired: bool) -> Any | None:
            try:
                is_done = attempt(expired)
            except KafkaError as refusal:
                return refused(refusal)
            return None if is_done is None else answer()

        committed.attempt = attempt_answer
        return committed


def _topics_as_configured(names: list[str]) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in names]
    return CreateTopicsRequest(topics=topics)


def _too_late(decided: bool) -> bool:
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _no_ids_now(refusal: KafkaError) -> Any:
    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no new producer ids now")


def _nobody_knows(response: AlterPartitionResponse) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
