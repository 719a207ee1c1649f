"""The controller as the broker sees it: the one in this process while it is active, else another.

Chosen at each call, since leadership of the quorum moves while requests wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.environment import Now
from headrace.node.broker.cluster.controller_port import ControllerPort
from headrace.node.steps import Steps
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
from headrace.wire.protocol.messages.create_topics import CreatableTopic


class ActiveController:
    def __init__(
        self,
        at_hand: ControllerPort,
        elsewhere: ControllerPort,
        is_at_hand: Callable[[], bool],
    ) -> None:
        self._at_hand = at_hand
        self._elsewhere = elsewhere
        self._is_at_hand = is_at_hand

    @property
    def _now(self) -> ControllerPort:
        return self._at_hand if self._is_at_hand() else self._elsewhere

    def create_topics(self, names: list[str], answer: Callable[[], Any], now: Now) -> Any:
        return self._now.create_topics(names, answer, now)

    def create_topics_in_slices(
        self, names: list[str], answer: Callable[[], Any], now: Now
    ) -> Steps:
        return self._now.create_topics_in_slices(names, answer, now)

    def create_internal_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        answer: Callable[[], Any],
        now: Now,
    ) -> Any:
        port = self._now
        return port.create_internal_topic(name, partitions, replicas, settings, answer, now)

    def create_described_topics(
        self, topics: list[CreatableTopic], answer: Callable[[Mapping[str, str]], Any], now: Now
    ) -> Any:
        return self._now.create_described_topics(topics, answer, now)

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any:
        return self._now.allocate_producer_ids(answer, now)

    def alter_partition(
        self,
        request: AlterPartitionRequest,
        answered: Callable[[AlterPartitionResponse | None], None],
        now: Now,
    ) -> None:
        self._now.alter_partition(request, answered, now)

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        answered: Callable[[BrokerRegistrationResponse | None], None],
        now: Now,
    ) -> None:
        self._now.register_broker(request, answered, now)

    def heartbeat(
        self,
        request: BrokerHeartbeatRequest,
        answered: Callable[[BrokerHeartbeatResponse | None], None],
        now: Now,
    ) -> None:
        self._now.heartbeat(request, answered, now)
