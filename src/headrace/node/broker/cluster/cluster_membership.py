"""This broker's membership in its cluster: performs the effects of `lifecycle.py`.

Requests go to the controller by the port, messages to the log. `look` is called whenever something
may have happened: from a timer, and when the metadata has been applied. A node that was admitted by
its own controller and is alone never calls it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.environment import Now
from headrace.node.broker.cluster.controller_port import ControllerPort
from headrace.node.broker.cluster.lifecycle import (
    Admitted,
    Answered,
    Applied,
    ControllerMoved,
    Cordoned,
    DirectoryFailed,
    Event,
    Failed,
    Left,
    Lifecycle,
    LifecycleState,
    MayStop,
    Say,
    Send,
    Started,
    Tick,
    Unfenced,
)
from headrace.wire.protocol.messages.broker_registration import BrokerRegistrationRequest

log = logging.getLogger(__name__)


class ClusterMembership:
    __slots__ = (
        "lifecycle",
        "failure",
        "on_left",
        "_port",
        "_now",
        "_applied_offset",
        "_controller",
        "_seen_offset",
        "_seen_controller",
        "_cordoned",
        "_events",
        "_is_performing",
    )

    def __init__(
        self,
        lifecycle: Lifecycle,
        port: ControllerPort,
        now: Now,
        *,
        applied_offset: Callable[[], int],
        controller: Callable[[], Any] = lambda: None,
    ) -> None:
        """`applied_offset`: up to where the broker has applied the metadata. `controller` tells one
        active controller from another; None: there is none."""
        self.lifecycle = lifecycle
        self.failure: str | None = None  # the message with which the node has to end
        self.on_left: Callable[[], None] = lambda: None
        self._port = port
        self._now = now
        self._applied_offset = applied_offset
        self._controller = controller
        self._seen_offset = -1
        self._seen_controller: Any = None
        self._cordoned: list[bytes] = []
        self._events: deque[Event] = deque()
        self._is_performing = False

    @property
    def is_unfenced(self) -> bool:
        return self.lifecycle.state is LifecycleState.RUNNING

    def start(self) -> None:
        self._seen_controller = self._controller()
        self._step(Started())

    def admitted(self, epoch: int) -> None:
        """The controller in this process has registered this broker at the start."""
        self._seen_controller = self._controller()
        self._step(Admitted(epoch))

    def leave(self, on_left: Callable[[], None]) -> None:
        """`on_left` is called once when the node may stop, maybe before this returns."""
        self.on_left = on_left
        if self.lifecycle.state is LifecycleState.GONE:
            on_left()
        else:
            self._step(Left())

    def directory_failed(self, directory_id: bytes) -> None:
        self._step(DirectoryFailed(directory_id))

    def cordoned(self, directory_ids: list[bytes]) -> None:
        """These data folders take no new replicas; call it again at will."""
        if directory_ids != self._cordoned:
            self._cordoned = directory_ids
            self._step(Cordoned(directory_ids))

    def look(self) -> None:
        """Do what is due."""
        lifecycle = self.lifecycle
        if lifecycle.next_ms is None:
            return
        controller = self._controller()
        if controller is not None and controller != self._seen_controller:
            self._seen_controller = controller
            self._step(ControllerMoved())
        offset = self._applied_offset()
        if offset != self._seen_offset:
            self._seen_offset = offset
            self._step(Applied(offset))
        self._step(Tick())

    def _step(self, event: Event) -> None:
        """Take an event. One that comes while another is processed, such as an answer to a request
        that is just made, waits for its turn."""
        self._events.append(event)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._events:
                self._take(self._events.popleft())
        finally:
            self._is_performing = False

    def _take(self, event: Event) -> None:
        for effect in self.lifecycle.step(event, self._now.monotonic_ms):
            match effect:
                case Send():
                    self._send(effect)
                case Unfenced():
                    log.info("this broker is unfenced (epoch %d)", self.lifecycle.epoch)
                case MayStop():
                    self.on_left()
                case Failed():
                    log.critical("%s", effect.sentence)
                    self.failure = effect.sentence
                case Say():
                    log.warning("%s", effect.sentence)

    def _send(self, send: Send) -> None:
        def answered(response: Any) -> None:
            self._step(Answered(send.number, response))

        if isinstance(send.request, BrokerRegistrationRequest):
            self._port.register_broker(send.request, answered, self._now)
        else:
            self._port.heartbeat(send.request, answered, self._now)
