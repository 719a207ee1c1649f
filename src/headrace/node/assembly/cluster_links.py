"""The links of a node to the others of its cluster: its membership, and its connection to the
controller.

The active controller may be this node or another one, and that may change at any moment. This
broker's own requests go to it through `port`, its clients' requests through `routing`. `look` is
called by a timer and whenever metadata was committed. A standby controller registers with the
active one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.environment import Address, Now, Peers
from headrace.node.assembly.active_controller import ActiveController
from headrace.node.assembly.broker_probes import BrokerProbes
from headrace.node.assembly.controller_at_hand import ControllerAtHand
from headrace.node.assembly.controller_elsewhere import ControllerElsewhere
from headrace.node.assembly.controller_routing import ControllerRouting
from headrace.node.assembly.directory_assignments import TIMEOUT_MS, DirectoryAssignments
from headrace.node.assembly.node_settings import NodeSettings
from headrace.node.assembly.quorum_member import QuorumMember
from headrace.node.assembly.standby_registration import StandbyRegistration
from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.cluster_membership import ClusterMembership
from headrace.node.broker.cluster.controller_channel import ControllerChannel
from headrace.node.broker.cluster.forwarding import Forwarding
from headrace.node.broker.cluster.lifecycle import (
    OTHER_REFUSAL,
    UNKNOWN_EPOCH,
    Lifecycle,
    LifecycleSettings,
)
from headrace.node.broker.cluster.refused_levels import (
    RefusedLevels,
    knows_enough,
    refused_levels,
)
from headrace.node.broker.replicas.partitions import Partitions
from headrace.node.broker.replicas.replica_fetching import inter_broker_listener
from headrace.node.metadata.features import SERVED_FEATURES
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.messages import assign_replicas_to_dirs, broker_registration
from headrace.wire.protocol.messages.broker_registration import BrokerRegistrationRequest


class ClusterLinks:
    def __init__(
        self,
        peers: Peers,
        settings: NodeSettings,
        now: Now,
        purgatory: Purgatory,
        member: QuorumMember,
        partitions: Partitions,
        *,
        jitter: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._now = now
        self._member = member
        self._jitter = jitter
        self._address: Address | None = (
            None  # of the active controller, when it was last looked for
        )
        self._broker: Broker
        self._applied_offset = -1  # of the broker, when it was last looked at
        self.membership: ClusterMembership | None = None  # None: not yet, or not a broker

        def channel(lane: str) -> ControllerChannel:
            return ControllerChannel(peers, member.active_controller, purgatory, now, lane)

        self._forwarded = channel("forwarding")
        self._standby = StandbyRegistration(
            channel("registration"),
            member.presented,
            now,
            lambda: member.controller.committed_image,
        )
        self.probes = BrokerProbes(
            peers, member.controller, inter_broker_listener(settings.values), now
        )
        directories = channel("directories")
        self._directories = DirectoryAssignments(
            lambda request, answered: directories.ask_once(
                assign_replicas_to_dirs, request, answered, timeout_ms=TIMEOUT_MS
            ),
            now,
            settings.node_id,
            partitions.folders,
        )
        self.routing = ControllerRouting(
            frozenset(settings.controllers),
            self._is_active,
            Forwarding(self._forwarded, purgatory, now),
            purgatory,
        )
        self._elsewhere = ControllerElsewhere(
            peers,
            member.active_controller,
            purgatory,
            now,
            session_timeout_ms=settings.values["broker.session.timeout.ms"],
        )
        self.port = ActiveController(
            ControllerAtHand(member.controller, settings.node_id, purgatory),
            self._elsewhere,
            self._is_active,
        )

    def _is_active(self) -> bool:
        return self._member.controller.is_active

    def _active_controller_id(self) -> int:
        return self._member.log.host.quorum.leader_id

    # Life

    def attach(self, broker: Broker) -> None:
        """Before anything is asked."""
        self._broker = self._elsewhere.broker = broker
        broker.active_controller_id = self._active_controller_id
        broker.await_registration(self._member.presented.incarnation_id)

    def enter(self, broker: Broker, previous_broker_epoch: int) -> None:
        """The logs are open: the broker may register. `previous_broker_epoch`: of a clean stop."""
        if not self._settings.is_broker:
            return
        values = self._settings.values
        lifecycle = Lifecycle(
            self._registration(previous_broker_epoch),
            LifecycleSettings(
                heartbeat_interval_ms=values["broker.heartbeat.interval.ms"],
                session_timeout_ms=values["broker.session.timeout.ms"],
                initial_registration_timeout_ms=values["initial.broker.registration.timeout.ms"],
                controlled_shutdown=values["controlled.shutdown.enable"],
            ),
            self._jitter,
            self._earlier_epoch(),
            self._refused_levels,
        )
        self.membership = ClusterMembership(
            lifecycle,
            self.port,
            self._now,
            applied_offset=lambda: broker.applied_offset,
            controller=self._member.active_controller,
        )
        self.membership.start()

    def _earlier_epoch(self) -> int:
        """Returns the epoch of an earlier start on the same data folder that the metadata takes for
        alive. It is not: this process has the folder now."""
        known = self._member.controller.committed_image.brokers
        earlier = known.get(self._settings.node_id)
        if earlier is None or earlier.fenced:
            return UNKNOWN_EPOCH
        is_same = set(earlier.log_dirs) & set(self._member.presented.log_dirs)
        return earlier.epoch if is_same else UNKNOWN_EPOCH

    def _refused_levels(self) -> RefusedLevels | None:
        """None: this node has not fetched the metadata yet, so it cannot tell."""
        image = self._member.controller.committed_image
        if not knows_enough(image, self._member.log.leader_high_watermark):
            return None
        return refused_levels(image, self._settings.node_id) or OTHER_REFUSAL

    def directory_failed(self, directory_id: bytes) -> None:
        """Report the failed folder with the next heartbeat, and with all later ones."""
        if self.membership is not None:
            self.membership.directory_failed(directory_id)

    def leave(self, on_left: Callable[[], None]) -> None:
        """Hand over what this broker leads; `on_left` is called when the node may stop."""
        if self.membership is None:
            on_left()
        else:
            self.membership.leave(on_left)

    @property
    def epoch_of_clean_stop(self) -> int:
        """The epoch of this start, never of another one that the metadata knows by the same id."""
        if self.membership is None:
            return UNKNOWN_EPOCH
        return self.membership.lifecycle.epoch_of_clean_stop

    @property
    def is_unfenced(self) -> bool:
        """True too if this node is not a broker."""
        if not self._settings.is_broker:
            return True
        return self.membership is not None and self.membership.is_unfenced

    @property
    def failure(self) -> str | None:
        """The sentence with which this node has to end."""
        return None if self.membership is None else self.membership.failure

    def look(self) -> None:
        """Do what is due."""
        address = self._member.active_controller()
        if address is not None and address != self._address:
            self._address = address
            self._elsewhere.controller_moved()
            self._forwarded.moved()
        self.see_what_is_applied()
        self.probes.look()
        if self.membership is not None:
            self.membership.cordoned(self._broker.partitions.folders.cordoned_directories)
            self.membership.look()
            is_here = self._broker.is_member and self.membership.is_unfenced
            if is_here and not self._broker.changes:
                self._directories.look(self._broker.image, self._broker.this.epoch)
        controller = self._member.controller
        if self._settings.is_controller and controller.has_caught_up and not controller.is_active:
            self._standby.look()

    def see_what_is_applied(self) -> None:
        """Requests that waited for the broker's metadata continue in the same turn."""
        if self._broker.applied_offset != self._applied_offset:
            self._applied_offset = self._broker.applied_offset
            self._elsewhere.metadata_applied()
            if self.membership is not None:
                self.membership.look()

    # Registrations

    def _registration(self, previous_broker_epoch: int) -> BrokerRegistrationRequest:
        presented = self._member.presented
        return BrokerRegistrationRequest(
            broker_id=presented.node_id,
            cluster_id=self._member.identity.cluster_id,
            incarnation_id=presented.incarnation_id,
            listeners=_listeners(broker_registration.Listener, presented.endpoints),
            features=_features(broker_registration.Feature),
            rack=presented.rack,
            log_dirs=list(presented.log_dirs),
            previous_broker_epoch=previous_broker_epoch,
        )


def _listeners(kind: Any, endpoints: Any) -> list[Any]:
    return [
        kind(
            name=point.name,
            host=point.host,
            port=point.port,
            security_protocol=point.security_protocol,
        )
        for point in endpoints
    ]


def _features(kind: Any) -> list[Any]:
    return [
        kind(
            name=name,
            min_supported_version=levels.lowest,
            max_supported_version=levels.highest,
        )
        for name, levels in SERVED_FEATURES.items()
    ]
