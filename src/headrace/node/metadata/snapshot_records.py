"""An image as the fewest records that rebuild it: what a snapshot holds.

In Apache's order: features (metadata.version first, it decides how the rest is read), brokers,
controllers, topics with their partitions, configs, quotas, producer ids, ACLs, SCRAM credentials,
delegation tokens; then what we keep without understanding it. A generator, so that a large image
is never there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.node.metadata.features import METADATA_VERSION, LevelRange
from headrace.node.metadata.image import BrokerImage, ControllerImage, MetadataImage, TopicImage
from headrace.wire.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.partition_record import PartitionRecord
from headrace.wire.protocol.messages.producer_ids_record import ProducerIdsRecord
from headrace.wire.protocol.messages.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from headrace.wire.protocol.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from headrace.wire.protocol.messages.topic_record import TopicRecord
from headrace.wire.protocol.messages.zk_migration_state_record import ZkMigrationStateRecord


def records_of(image: MetadataImage) -> Iterator[Any]:
    assert image.transaction is None, "a snapshot in the middle of a metadata transaction"
    yield from _feature_levels(image.features)
    yield from map(broker_record, image.brokers.values())
    yield from map(controller_record, image.controllers.values())
    for topic in image.topics.values():
        yield from _topic_records(topic)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    yield from _client_quotas(image)
    if image.next_producer_id:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    yield from image.acls.values()
    yield from image.scram_credentials.values()
    yield from image.delegation_tokens.values()
    if image.zk_migration_state:
        yield ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state)
    yield from image.unknown


def _feature_levels(features: Mapping[str, int]) -> Iterator[Any]:
    for name in sorted(features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=features[name])


def broker_record(broker: BrokerImage) -> Any:
    cordoned = broker.cordoned_log_dirs
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=point.name,
                host=point.host,
                port=point.port,
                security_protocol=point.security_protocol,
            )
            for point in broker.endpoints
        ],
        features=_supported(BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def controller_record(controller: ControllerImage) -> Any:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=point.name,
                host=point.host,
                port=point.port,
                security_protocol=point.security_protocol,
            )
            for point in controller.endpoints
        ],
        features=_supported(ControllerFeature, controller.features),
    )


def _supported(record_class: Any, features: Mapping[str, LevelRange]) -> list[Any]:
    return [
        record_class(
            name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest
        )
        for name, levels in features.items()
    ]


def _topic_records(topic: TopicImage) -> Iterator[Any]:
    yield TopicRecord(name=topic.name, topic_id=topic.id)
    for index, partition in enumerate(topic.partitions):
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic.id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            removing_replicas=list(partition.removing_replicas),
            adding_replicas=list(partition.adding_replicas),
            leader=partition.leader,
            leader_recovery_state=partition.leader_recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=list(partition.directories),
            # Apache writes null, not an empty list, if there are none.
            eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
            last_known_elr=list(partition.last_known_elr) or None,
        )


def _client_quotas(image: MetadataImage) -> Iterator[Any]:
    for entity, limits in image.client_quotas.items():
        for key, value in limits.items():
            yield ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=value,
                remove=False,
            )
