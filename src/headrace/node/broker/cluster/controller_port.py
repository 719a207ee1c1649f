"""The broker's interface to the controller, wherever that is.

The controller may be in the same process (`assembly/controller_at_hand.py`) or in another
(`assembly/controller_elsewhere.py`); `assembly/active_controller.py` chooses at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from headrace.environment import Now
from headrace.node.steps import Steps
from headrace.wire.protocol.errors import ErrorCode
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
from headrace.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsResponse


class ControllerPort(Protocol):
    """The broker's interface to the controller, wherever that is; answers come when the change is
    committed."""

    def create_topics(self, names: list[str], answer: Callable[[], Any], now: Now) -> Any:
        """Create topics with the settings of the broker; those that cannot be created are left
        out."""
        ...

    def create_topics_in_slices(
        self, names: list[str], answer: Callable[[], Any], now: Now
    ) -> Steps:
        """The same for many topics."""
        ...

    def create_internal_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        answer: Callable[[], Any],
        now: Now,
    ) -> Any:
        """Create a coordinator's topic; an existing one is not changed."""
        ...

    def create_described_topics(
        self, topics: list[CreatableTopic], answer: Callable[[Mapping[str, str]], Any], now: Now
    ) -> Any:
        """Create topics with partitions and settings of their own. `answer` gets the reasons by the
        names of those that could not be created; a topic that exists is not changed."""
        ...

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any:
        """`answer(first, count)` gets a block of ids that was never given out before."""
        ...

    def alter_partition(
        self,
        request: AlterPartitionRequest,
        answered: Callable[[AlterPartitionResponse | None], None],
        now: Now,
    ) -> None:
        """`answered` is called once: when the change is committed, or with None when it may not
        be."""
        ...

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        answered: Callable[[BrokerRegistrationResponse | None], None],
        now: Now,
    ) -> None:
        """Register this broker. `answered` is called once, maybe before this returns; with None if
        the outcome is unknown."""
        ...

    def heartbeat(
        self,
        request: BrokerHeartbeatRequest,
        answered: Callable[[BrokerHeartbeatResponse | None], None],
        now: Now,
    ) -> None:
        """Send a heartbeat of this broker; `answered` as above."""
        ...


def refused_topics(response: CreateTopicsResponse) -> dict[str, str]:
    """Returns why topics were not created, by name; those that existed are left out."""
    there = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return {
        topic.name: topic.error_message or ErrorCode(topic.error_code).description
        for topic in response.topics
        if topic.error_code not in there
    }
