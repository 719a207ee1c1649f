"""The settings of a node at its start, and their consequences for its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.node.broker.cluster.endpoint import Endpoint
from headrace.node.consensus.quorum.machine import Timeouts
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.node.controller.members.brokers import Membership
from headrace.node.controller.topics import EffectiveConfig, TopicRules
from headrace.node.metadata import configs
from headrace.node.metadata.config_validation import validate_topic_configs
from headrace.node.metadata.image import Endpoint as AdvertisedEndpoint
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol import uuids


@dataclass(slots=True)
class NodeSettings:
    node_id: int
    folder: str  # with the metadata log
    # Passwords are among both, so they are not shown.
    values: Mapping[str, Any] = field(repr=False)  # broker settings by Kafka's names, typed
    given: Mapping[str, str] = field(repr=False)  # those that were set explicitly, as text
    endpoints: dict[str, Endpoint]  # what Metadata answers give to clients of each listener
    controller_endpoint: VoterEndpoint
    # The addresses for clients of a controller's listener, by its name; empty: there is none.
    controllers: dict[str, Endpoint] = field(default_factory=dict)
    protocols: Mapping[str, int] = field(default_factory=dict)  # by listener; Kafka's numbers
    # Records of users that a cluster without any gets.
    first_users: Sequence[Any] = field(default=(), repr=False)
    is_broker: bool = True
    is_controller: bool = True
    # For a quorum of kraft.version 0; otherwise the metadata log names the voters.
    static_voters: tuple[Voter, ...] = ()
    bootstrap: tuple[VoterEndpoint, ...] = ()  # where to ask for the quorum's leader
    log_dirs: tuple[str, ...] = ()  # where partitions are stored; empty: in `folder`
    failed_folders: Mapping[str, str] = field(default_factory=dict)  # why, by path


def controller_settings(settings: NodeSettings, *, alone: bool) -> ControllerSettings:
    values, given = settings.values, settings.given

    def validate(image: MetadataImage, own: dict[str, str]) -> None:
        validate_topic_configs(own, configs.topic_defaults(given, image.configs))

    def describe(image: MetadataImage, own: dict[str, str]) -> Iterator[EffectiveConfig]:
        for found in configs.describe_topic(given, image.configs, own):
            yield EffectiveConfig(*found)

    return ControllerSettings(
        node_id=settings.node_id,
        alone=alone,
        idle_interval_ms=0 if alone else values["metadata.max.idle.interval.ms"],
        topic_rules=TopicRules(
            num_partitions=values["num.partitions"],
            default_replication_factor=values["default.replication.factor"],
            delete_topic_enable=values["delete.topic.enable"],
            validate_configs=validate,
            describe_configs=describe,
        ),
        given=given,
        min_in_sync_replicas=values["min.insync.replicas"],
        session_timeout_ms=values["broker.session.timeout.ms"],
        balance_leaders=values["auto.leader.rebalance.enable"],
        balance_interval_ms=values["leader.imbalance.check.interval.seconds"] * 1_000,
        open_listeners=frozenset(settings.controllers),
        snapshot_after_bytes=values["metadata.log.max.record.bytes.between.snapshots"],
        snapshot_after_ms=values["metadata.log.max.snapshot.interval.ms"],
        retention_bytes=values["metadata.max.retention.bytes"],
        retention_ms=values["metadata.max.retention.ms"],
    )


def quorum_timeouts(values: Mapping[str, Any]) -> Timeouts:
    return Timeouts(
        election_ms=values["controller.quorum.election.timeout.ms"],
        fetch_ms=values["controller.quorum.fetch.timeout.ms"],
        election_backoff_max_ms=values["controller.quorum.election.backoff.max.ms"],
        request_ms=values["controller.quorum.request.timeout.ms"],
        retry_backoff_ms=values["controller.quorum.retry.backoff.ms"],
    )


def membership(settings: NodeSettings, randomness: Callable[[int], bytes]) -> Membership:
    """Returns how this start of the node registers; its data folders are added when they are
    open."""
    controller = settings.controller_endpoint
    return Membership(
        node_id=settings.node_id,
        incarnation_id=uuids.random_id(randomness(16)),
        controller_incarnation_id=uuids.random_id(randomness(16)),
        endpoints=tuple(
            AdvertisedEndpoint(name, endpoint.host, endpoint.port, settings.protocols.get(name, 0))
            for name, endpoint in settings.endpoints.items()
        ),
        controller_endpoints=(
            AdvertisedEndpoint(
                controller.listener,
                controller.host,
                controller.port,
                settings.protocols.get(controller.listener, 0),
            ),
        ),
        log_dirs=(),
        rack=settings.values["broker.rack"],
    )
