"""The controller in the same process, as the broker sees it (`broker.ControllerPort`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.controller.controller import Controller
from headrace.controller.in_sync_changes import alter_partition
from headrace.environment import Now
from headrace.protocol.errors import KafkaError
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.steps import Steps
from headrace.serving.api import Parked
from headrace.serving.purgatory import Purgatory

NEWEST_ALTER_PARTITION = 3


class ControllerAtHand:
    """The controller in the same process, as the broker sees it."""

    def __init__(self, controller: Controller, node_id: int, purgatory: Purgatory) -> None:
        self._controller = controller
        self._node_id = node_id
        self._purgatory = purgatory

    def create_topics(self, names: list[str], answer: Callable[[], Any], now: Now) -> Any:
        self._controller.create_topics(_topics_as_configured(names), now)
        return self._when_committed(answer, now, with_files=True)

    def create_topics_in_slices(
        self, names: list[str], answer: Callable[[], Any], now: Now
    ) -> Steps:
        yield from self._controller.create_topics_in_slices(_topics_as_configured(names), now)
        return self._when_committed(answer, now, with_files=True)

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
        return self._when_committed(answer, now, with_files=True)

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any:
        controller = self._controller
        block = controller.allocate_producer_ids(self._node_id, controller.broker_epoch, now)
        return self._when_committed(lambda: answer(block.first, block.size), now)

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

        def answer() -> bool:
            answered(decision.response)
            return True

        waiting = self._when_committed(answer, now)
        if isinstance(waiting, Parked):
            self._purgatory.park(waiting)

    def _when_committed(
        self, answer: Callable[[], Any], now: Now, *, with_files: bool = False
    ) -> Any:
        committed = self._controller.answer(True, now, with_files=with_files)
        if not isinstance(committed, Parked):
            return answer()
        attempt = committed.attempt
        committed.attempt = lambda expired: None if attempt(expired) is None else answer()
        return committed


def _topics_as_configured(names: list[str]) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in names]
    return CreateTopicsRequest(topics=topics)
