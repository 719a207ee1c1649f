"""A real controller in "another process": brokers reach it by Kafka's bytes, and it can be gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.environment import Address
from headrace.node.assembly.controller_at_hand import ControllerAtHand
from headrace.node.assembly.controller_elsewhere import ControllerElsewhere
from headrace.node.assembly.controller_routing import ControllerRouting
from headrace.node.assembly.served import forwardable_apis, served_apis
from headrace.node.broker.cluster.cluster_membership import ClusterMembership
from headrace.node.broker.cluster.controller_channel import ControllerChannel
from headrace.node.broker.cluster.forwarding import Forwarding
from headrace.node.broker.cluster.lifecycle import Lifecycle, LifecycleSettings
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.metadata.image import MetadataImage
from headrace.node.replication.this_broker import ThisBroker
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.dispatch import Dispatch
from headrace.node.serving.envelopes import Envelopes
from headrace.node.serving.principal import ANONYMOUS
from headrace.node.serving.route import Route
from headrace.node.serving.session import Session
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from tests.unit.node.consensus.quorum_of_one import QuorumOfOne

LISTENER = "CONTROLLER"
PLACE = Address("controller", 9093)


class RemoteController:
    """`Peers` for all brokers at once; time passes by `passes`."""

    def __init__(self, folder: Path, authorizer: Authorizer | None = None) -> None:
        self.quorum = QuorumOfOne(folder)
        self.quorum.controller.authorizer = authorizer
        self.now, self.purgatory = self.quorum.now, self.quorum.purgatory
        self.place: Address | None = PLACE  # where brokers believe that it is
        self.is_reachable = True
        self.asked: list[tuple[str, Any]] = []  # lane and request
        self.answer_instead: Callable[[Any, Any], Any] = lambda messages, request: None
        self.brokers: list[RemoteBroker] = []
        self.quorum.controller.on_committed.append(self._committed)
        self._turn: list[Callable[[], None]] = []
        self._waiting: dict[Session, Callable[[memoryview], None]] = {}
        self.brokers_principal = ANONYMOUS
        self.is_active = True
        self.dispatch = self._served()
        # The broker in the controller's own process.
        own = self.quorum.controller.settings.node_id
        self.own = ClusterMembership(
            Lifecycle(BrokerRegistrationRequest(own), LifecycleSettings(), lambda: 0.0),
            ControllerAtHand(self.quorum.controller, own, self.purgatory),
            self.now,
            applied_offset=lambda: self.image.offset,
        )
        self.own.admitted(self.quorum.controller.broker_epoch)

    def _served(self) -> Dispatch:
        """What the controller's listener answers, by the controller; what its broker does is left
        out."""
        controller, purgatory = self.quorum.controller, self.purgatory
        channel = ControllerChannel(self, lambda: self.place, purgatory, self.now, "forwarding")
        routing = ControllerRouting(
            frozenset({LISTENER}),
            lambda: self.is_active,
            Forwarding(channel, purgatory, self.now),
            purgatory,
        )
        inside = [
            Route(api, version, controller)
            for api in forwardable_apis()
            for version in api.versions
        ]
        envelopes = Envelopes(inside, controller.authorizer, lambda: self.is_active)
        owners = {"controller": controller, "envelopes": envelopes}
        routes = [
            Route(api, version, owners[api.owner])
            for api in served_apis([LISTENER], routing)
            if api.owner in owners
            for version in api.versions
        ]
        return Dispatch(routes, purgatory, self.now, max_frame=1 << 20)

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
            gone = WaitingRequest(lambda expired: expired or None, deadline_ms=0, hangs_on=[])
            gone.deadline_ms = self.now.monotonic_ms + timeout_ms
            gone.complete = lambda _: answered(None)
            self.purgatory.add(gone)
            return
        version = messages.VERSIONS[-1] if newest is None else newest
        instead = self.answer_instead(messages, request)
        if instead is not None:
            self._turn.append(lambda: answered(instead))
            return
        session = Session("10.0.0.2", LISTENER)
        session.principal = self.brokers_principal
        self._turn.append(lambda: self.send(session, messages, version, request))
        self._waiting[session] = lambda reply: answered(
            decode_response(messages, version, reply)[1]
        )

    def send(self, session: Session, messages: Any, version: int, request: Any) -> None:
        pieces = encode_request(messages, version, 7, "broker-2", request)
        data = b"".join(bytes(piece) for piece in pieces)
        assert self.dispatch.feed(session, memoryview(data), len(data)) == len(data)

    def _deliver(self) -> bool:
        """Replies that are ready; whether there was one."""
        ready = [session for session in self._waiting if session.outbox]
        for session in ready:
            reply = b"".join(bytes(piece) for piece in session.outbox)  # type: ignore[arg-type]
            self._waiting.pop(session)(memoryview(reply)[4:])
        return bool(ready)

    def until_idle(self) -> None:
        """Turns of the loop until nothing moves any more."""
        while True:
            self.purgatory.expire(self.now.monotonic_ms)
            self.purgatory.try_woken()
            turn, self._turn = self._turn, []
            for do in turn:
                do()
            self.own.look()
            for broker in self.brokers:
                broker.membership.look()
                broker.port.metadata_applied()
            self.dispatch.long_answers.run(lambda: False)
            self.purgatory.try_woken()
            if self.quorum.wants_flush:
                self.quorum.flush()
            elif not self._deliver() and not turn and not self._turn:
                return

    def passes(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            self.now.monotonic_ms += 100
            self.now.wall_ms += 100
            if self.now.monotonic_ms % 1_000 == 0:
                self.quorum.controller.tick(self.now)
            self.until_idle()

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
        self.controller.until_idle()
        return self

    @property
    def is_fenced(self) -> bool:
        return self.controller.image.brokers[self.this.id].fenced
