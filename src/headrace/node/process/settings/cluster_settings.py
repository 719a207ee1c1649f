"""A node's place in its cluster, by its settings: roles, controllers, listeners between nodes.

The rules are Apache Kafka's for `process.roles`; `BadValue` names the broken one in one sentence.
One rule is less strict: a node with both roles may name no controllers at all. Then it is a cluster
of one, whose controller no other node has to reach. Where a cluster has more than one controller,
the internal topics get Kafka's own replication factors, not those of a cluster of one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.node.consensus.configured_voters import (
    BOOTSTRAP_SERVERS,
    STATIC_VOTERS,
    bootstrap_endpoints,
    static_voters,
)
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.process.listeners.addresses import Listener, protocols_by_listener

log = logging.getLogger(__name__)

BROKER, CONTROLLER = "broker", "controller"

# Kafka's own defaults: `headrace.py` lowers them for a cluster of one.
FOR_SEVERAL_CONTROLLERS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


@dataclass(slots=True, frozen=True)
class ClusterSettings:
    is_broker: bool
    is_controller: bool
    # The listener through which nodes reach controllers: the first of `controller.listener.names`.
    controller_listener: str
    controller_protocol: str
    # The listener through which nodes reach brokers; None: this node is not a broker.
    broker_listener: str | None
    static_voters: tuple[Voter, ...] = ()
    bootstrap: tuple[VoterEndpoint, ...] = ()
    has_door: bool = False  # controllers of other nodes can reach this one's

    @property
    def is_alone(self) -> bool:
        """A cluster of one: there are no other nodes, and none can join."""
        return (
            self.is_broker and self.is_controller and not self.has_door and not self.is_one_of_many
        )

    @property
    def may_begin_alone(self) -> bool:
        """True if its settings name no other controller: a new folder then begins a new cluster."""
        return self.is_broker and self.is_controller and not self.is_one_of_many

    @property
    def is_one_of_many(self) -> bool:
        return len(self.static_voters) > 1 or len(self.bootstrap) > 1


def cluster_settings_of(
    values: Mapping[str, Any],
    given: Mapping[str, str],
    clients: tuple[Listener, ...],
    controllers: tuple[Listener, ...],
) -> ClusterSettings:
    """`given` are the settings that were set explicitly, `values` all of them, typed."""
    roles = values["process.roles"]
    if not roles:
        raise BadValue("process.roles must be broker, controller, or broker,controller.")
    names = [name.upper() for name in values["controller.listener.names"] or ()]
    if not names:
        raise BadValue("controller.listener.names must name at least one listener.")
    cluster = ClusterSettings(
        is_broker=BROKER in roles,
        is_controller=CONTROLLER in roles,
        controller_listener=names[0],
        controller_protocol=protocols_by_listener(values).get(names[0], "PLAINTEXT"),
        broker_listener=_broker_listener(values, given, clients) if BROKER in roles else None,
        static_voters=static_voters(values[STATIC_VOTERS], names[0]),
        bootstrap=bootstrap_endpoints(values[BOOTSTRAP_SERVERS], names[0]),
        has_door=bool(controllers),
    )
    _require_listeners(cluster, names, clients, controllers)
    _require_controllers(cluster, values["node.id"])
    _require_login(values, given, clients, cluster)
    _warn_of_short_sessions(values)
    return cluster


def _require_listeners(
    cluster: ClusterSettings,
    names: list[str],
    clients: tuple[Listener, ...],
    controllers: tuple[Listener, ...],
) -> None:
    if cluster.is_broker and not clients:
        raise BadValue("listeners has no entry for clients, only for controllers.")
    if not cluster.is_controller:
        if controllers:
            raise BadValue(
                f"listeners has {controllers[0].name}, which controller.listener.names says is for "
                "controllers: a node with process.roles=broker opens none of these."
            )
        if len(names) > 1:
            log.warning("of controller.listener.names a broker uses the first, %s", names[0])
    if not cluster.is_broker and clients:
        raise BadValue(
            f"listeners has {clients[0].name}, which is not in controller.listener.names: a node "
            "with process.roles=controller has listeners for controllers only."
        )
    if (
        cluster.is_controller
        and not controllers
        and (not cluster.is_broker or cluster.is_one_of_many)
    ):
        raise BadValue(
            "listeners must have an entry for controllers: add one whose name is in "
            f"controller.listener.names, such as {names[0]}://localhost:9093."
        )


def _require_controllers(cluster: ClusterSettings, node_id: int) -> None:
    voters = {voter.id for voter in cluster.static_voters}
    named = ",".join(map(str, sorted(voters)))
    if not voters and not cluster.bootstrap and not (cluster.is_broker and cluster.is_controller):
        raise BadValue(
            f"Name the controllers: {BOOTSTRAP_SERVERS}, a list of HOST:PORT, or "
            f"{STATIC_VOTERS}, a list of ID@HOST:PORT. Only a node of both roles can do without."
        )
    if voters and cluster.is_controller and node_id not in voters:
        raise BadValue(
            f"{STATIC_VOTERS} names {named}, which does not name node.id={node_id}, a controller."
        )
    if voters and not cluster.is_controller and node_id in voters:
        raise BadValue(
            f"{STATIC_VOTERS} names {named}: node.id={node_id} is a broker only, so it must not be "
            "one of them."
        )


def _broker_listener(
    values: Mapping[str, Any], given: Mapping[str, str], clients: tuple[Listener, ...]
) -> str | None:
    named = values["inter.broker.listener.name"]
    protocol = values["security.inter.broker.protocol"]
    names = [listener.name for listener in clients]
    if named and "security.inter.broker.protocol" in given:
        raise BadValue(
            "Set one of inter.broker.listener.name and security.inter.broker.protocol, not both."
        )
    if named:
        if named.upper() not in names:
            raise BadValue(f"inter.broker.listener.name={named} is not in listeners.")
        return str(named).upper()
    if protocol in names:
        return str(protocol)
    if "security.inter.broker.protocol" in given or protocol != "PLAINTEXT":
        raise BadValue(f"security.inter.broker.protocol={protocol} is not in listeners.")
    # The protocol is not set and no listener is named PLAINTEXT: Apache Kafka refuses this, but a
    # node that is alone needs no listener between brokers.
    return names[0] if names else None


def _require_login(
    values: Mapping[str, Any],
    given: Mapping[str, str],
    clients: tuple[Listener, ...],
    cluster: ClusterSettings,
) -> None:
    if not cluster.is_one_of_many or cluster.broker_listener is None:
        return
    listener = next(each for each in clients if each.name == cluster.broker_listener)
    mechanism = values["sasl.mechanism.inter.broker.protocol"]
    own = given.get(f"listener.name.{listener.name.lower()}.sasl.enabled.mechanisms")
    enabled = values["sasl.enabled.mechanisms"] if own is None else own.replace(" ", "").split(",")
    if listener.protocol.startswith("SASL_") and mechanism not in enabled:
        raise BadValue(
            f"Brokers log in to each other on {listener.name}: "
            f"sasl.mechanism.inter.broker.protocol={mechanism} must be in sasl.enabled.mechanisms."
        )


def _warn_of_short_sessions(values: Mapping[str, Any]) -> None:
    beat, session = values["broker.heartbeat.interval.ms"], values["broker.session.timeout.ms"]
    if 2 * beat > session:
        log.warning(
            "broker.heartbeat.interval.ms (%d) is above half of broker.session.timeout.ms (%d): "
            "one late heartbeat fences the broker",
            beat,
            session,
        )
