"""A real controller in "another process": brokers reach it by Kafka's bytes, and it can be gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.broker.cluster_membership import ClusterMembership
from headrace.broker.lifecycle import Lifecycle, LifecycleSettings
from headrace.controller.handlers import HANDLERS
from headrace.controller_at_hand import ControllerAtHand
from headrace.controller_elsewhere import ControllerElsewhere
from headrace.environment import Address
from headrace.metadata.features import SUPPORTED_FEATURES
from headrace.metadata.image import MetadataImage
from headrace.protocol.errors import KafkaError
from headrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from headrace.replication.this_broker import ThisBroker
from headrace.serving.api import Call, Parked
from headrace.serving.route import Route, error_response
from headrace.serving.session import Session
from tests.unit.consensus.quorum_of_one import QuorumOfOne

API_OF = {api.messages.API_KEY: api for api in HANDLERS}
PLACE = Address("controller", 9093)


class RemoteController:
    """`Peers` for all brokers at once; time passes by `passes`."""

    def __init__(self, folder: Path) -> None:
        self.quorum = QuorumOfOne(folder)
        self.now, self.purgatory = self.quorum.now, self.quorum.purgatory
        self.place: Address | None = PLACE  # where brokers believe that it is
        self.is_reachable = True
        self.asked: list[tuple[str, Any]] = []  # lane and request
        self.answer_instead: Callable[[Any, Any], Any] = lambda messages, request: None
        self.brokers: list[RemoteBroker] = []
        self.quorum.controller.on_committed.append(self._committed)
        self._turn: list[Callable[[], None]] = []
        # The broker in the controller's own process.
        own = self.quorum.controller.settings.node_id
        self.own = ClusterMembership(
            Lifecycle(BrokerRegistrationRequest(own), LifecycleSettings(), lambda: 0.0),
            ControllerAtHand(self.quorum.controller, own, self.purgatory),
            self.now,
            applied_offset=lambda: self.image.offset,
        )
        self.own.admitted(self.quorum.controller.broker_epoch)

    def _committed(self, image: MetadataImage) -> None:
        for broker in self.brokers:
            broker.follows(image)

    def ask(
        self,
        to: Address,
        lane: str,
        messages: Any,
        request: Any,
        answered: Callable[[Any], None],
        *,
        timeout_ms: int,
        newest: int | None = None,
    ) -> None:
        self.asked.append((lane, request))
        if not self.is_reachable:
            gone = Parked(lambda expired: expired or None, deadline_ms=0, hangs_on=[])
            gone.deadline_ms = self.now.monotonic_ms + timeout_ms
            gone.complete = lambda _: answered(None)
            self.purgatory.park(gone)
            return
        version = messages.VERSIONS[-1]
        pieces: list[Any] = []
        messages.ENCODE_REQUEST[version](request, pieces.append)
        sent = b"".join(pieces)

        def arrives() -> None:
            came, _ = messages.DECODE_REQUEST[version](memoryview(sent), 0)
            answer = self.answer_instead(messages, came)
            if answer is None:
                call = Call(
                    self.now, version, memoryview(b""), Session("10.0.0.2", "CONTROLLER"), 1
                )
                api = API_OF[messages.API_KEY]
                try:
                    answer = api.handle(self.quorum.controller, came, call)
                except KafkaError as refusal:
                    answer = error_response(Route(api, version, None), refusal)
            if isinstance(answer, Parked):
                answer.complete = responds
                self.purgatory.park(answer)
            else:
                responds(answer)

        def responds(answer: Any) -> None:
            reply: list[Any] = []
            messages.ENCODE_RESPONSE[version](answer, reply.append)
            response, _ = messages.DECODE_RESPONSE[version](memoryview(b"".join(reply)), 0)
            self._turn.append(lambda: answered(response))

        self._turn.append(arrives)

    def settle(self) -> None:
        """Turns of the loop until nothing moves any more."""
        while True:
            self.purgatory.expire(self.now.monotonic_ms)
            self.purgatory.settle()
            turn, self._turn = self._turn, []
            for do in turn:
                do()
            self.own.look()
            for broker in self.brokers:
                broker.membership.look()
                broker.port.metadata_applied()
            self.purgatory.settle()
            if self.quorum.wants_flush:
                self.quorum.flush()
            elif not turn and not self._turn:
                return

    def passes(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            self.now.monotonic_ms += 100
            self.now.wall_ms += 100
            if self.now.monotonic_ms % 1_000 == 0:
                self.quorum.controller.tick(self.now)
            self.settle()

    @property
    def image(self) -> MetadataImage:
        return self.quorum.controller.committed_image


class RemoteBroker:
    """Follows the controller's metadata, as a broker does."""

    def __init__(self, controller: RemoteController, broker_id: int = 2, **wants: Any) -> None:
        self.controller = controller
        self.image = controller.image
        self.this = ThisBroker(broker_id)
        self.lags = False  # then it applies nothing more
        self._applied_offset = self.image.offset
        self.port = ControllerElsewhere(
            controller, lambda: controller.place, controller.purgatory, controller.now
        )
        self.port.broker = self
        known: dict[str, Any] = dict(
            broker_id=broker_id,
            cluster_id=self.image.cluster_id,
            incarnation_id=b"incarnation %d" % broker_id + bytes(3),
            listeners=[Listener("PLAINTEXT", f"broker-{broker_id}", 9092, 0)],
            features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            rack=None,
            log_dirs=[b"folder %d" % broker_id + bytes(8)],
        )
        registration = BrokerRegistrationRequest(**known | wants)
        self.membership = ClusterMembership(
            Lifecycle(registration, LifecycleSettings(), lambda: 0.0),
            self.port,
            controller.now,
            applied_offset=lambda: self.applied_offset,
            controller=lambda: controller.place,
        )
        controller.brokers.append(self)

    def follows(self, image: MetadataImage) -> None:
        if self.lags:
            return
        self.image = image
        self._applied_offset = image.offset
        me = image.brokers.get(self.this.id)
        self.this.epoch = -1 if me is None else me.epoch

    @property
    def applied_offset(self) -> int:
        return self._applied_offset

    def starts(self) -> RemoteBroker:
        self.membership.start()
        self.controller.settle()
        return self

    @property
    def is_fenced(self) -> bool:
        return self.controller.image.brokers[self.this.id].fenced
