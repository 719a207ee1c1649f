"""The image as the sum of its records: what each record does, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.metadata.image import (
    BROKER_RESOURCE,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    TOPIC_RESOURCE,
    InconsistentMetadata,
    MetadataImage,
)
from headrace.node.metadata.records import UnknownRecord, decode, encode
from headrace.node.metadata.snapshot_records import records_of
from headrace.wire.protocol.messages.abort_transaction_record import AbortTransactionRecord
from headrace.wire.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from headrace.wire.protocol.messages.begin_transaction_record import BeginTransactionRecord
from headrace.wire.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from headrace.wire.protocol.messages.clear_elr_record import ClearElrRecord
from headrace.wire.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.delegation_token_record import DelegationTokenRecord
from headrace.wire.protocol.messages.end_transaction_record import EndTransactionRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.fence_broker_record import FenceBrokerRecord
from headrace.wire.protocol.messages.no_op_record import NoOpRecord
from headrace.wire.protocol.messages.partition_change_record import PartitionChangeRecord
from headrace.wire.protocol.messages.partition_record import PartitionRecord
from headrace.wire.protocol.messages.producer_ids_record import ProducerIdsRecord
from headrace.wire.protocol.messages.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from headrace.wire.protocol.messages.register_controller_record import RegisterControllerRecord
from headrace.wire.protocol.messages.remove_access_control_entry_record import (
    RemoveAccessControlEntryRecord,
)
from headrace.wire.protocol.messages.remove_delegation_token_record import (
    RemoveDelegationTokenRecord,
)
from headrace.wire.protocol.messages.remove_topic_record import RemoveTopicRecord
from headrace.wire.protocol.messages.remove_user_scram_credential_record import (
    RemoveUserScramCredentialRecord,
)
from headrace.wire.protocol.messages.topic_record import TopicRecord
from headrace.wire.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from headrace.wire.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from headrace.wire.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from headrace.wire.protocol.messages.zk_migration_state_record import ZkMigrationStateRecord

ORDERS, VISITS = b"orders".ljust(16), b"visits".ljust(16)
DISK = b"disk".ljust(16)


def image_of(*records: Any) -> MetadataImage:
    return after(MetadataImage(cluster_id="test"), *records)


def after(image: MetadataImage, *records: Any) -> MetadataImage:
    return image.apply(records, offset=image.offset + len(records), epoch=1, wall_ms=1_000)


def broker(broker_id: int, **fields: Any) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=5, log_dirs=[DISK], **fields)


def partition(topic_id: bytes, index: int, **fields: Any) -> PartitionRecord:
    record = PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DISK, DISK],
    )
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def change(index: int, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=index, topic_id=ORDERS, **fields)


def test_a_topic_appears_with_its_partitions_and_config_and_goes_with_them() -> None:
    image = image_of(
        TopicRecord(name="orders", topic_id=ORDERS),
        ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", "1000"),
        partition(ORDERS, 0),
        partition(ORDERS, 1),
    )
    assert len(image.topics["orders"].partitions) == 2
    assert image.topics_by_id[ORDERS] is image.topics["orders"]
    assert image.config(TOPIC_RESOURCE, "orders") == {"retention.ms": "1000"}

    gone = after(image, RemoveTopicRecord(topic_id=ORDERS))
    assert not gone.topics and not gone.topics_by_id and not gone.configs
    assert len(image.topics) == 1, "the older image stays as it was"


def test_what_did_not_change_is_shared() -> None:
    """Whoever follows images finds what changed by identity."""
    old = image_of(
        TopicRecord(name="orders", topic_id=ORDERS),
        partition(ORDERS, 0),
        TopicRecord(name="visits", topic_id=VISITS),
        partition(VISITS, 0),
        ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", "1000"),
    )
    idle = after(old, NoOpRecord())
    assert idle.topics is old.topics and idle.configs is old.configs
    assert idle.topics_by_id is old.topics_by_id

    new = after(old, change(0, isr=[1]), ConfigRecord(BROKER_RESOURCE, "", "log.retention.ms", "5"))
    assert new.topics["visits"] is old.topics["visits"]
    assert new.topics["orders"] is not old.topics["orders"]
    assert new.topics_by_id[ORDERS] is new.topics["orders"]
    assert new.configs is not old.configs


def test_a_partition_change_says_only_what_changes() -> None:
    image = image_of(TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0))
    shrunk = after(image, change(0, isr=[1])).topics["orders"].partitions[0]
    assert shrunk.isr == (1,) and shrunk.leader == 1
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1)

    led = after(image, change(0, leader=2)).topics["orders"].partitions[0]
    assert (led.leader, led.leader_epoch, led.partition_epoch) == (2, 1, 1)

    again = after(image, change(0, leader=1)).topics["orders"].partitions[0]
    assert again.leader_epoch == 1, "the same leader begins a new epoch too"

    moved = after(image, change(0, replicas=[2, 3])).topics["orders"].partitions[0]
    assert moved.directories == (DISK, MIGRATING_DIRECTORY)


def test_eligible_leaders_come_and_are_cleared_for_one_topic_or_all() -> None:
    left = image_of(
        TopicRecord(name="orders", topic_id=ORDERS),
        partition(ORDERS, 0),
        partition(ORDERS, 1),
        change(0, isr=[], leader=NO_LEADER, eligible_leader_replicas=[1], last_known_elr=[1]),
    )
    assert left.topics["orders"].partitions[0].eligible_leader_replicas == (1,)
    for name in ("orders", ""):
        first, second = after(left, ClearElrRecord(topic_name=name)).topics["orders"].partitions
        assert first.eligible_leader_replicas == () and first.last_known_elr == ()
        assert first.partition_epoch == 2 and second.partition_epoch == 0


def test_a_broker_is_fenced_unfenced_and_shut_down_by_either_kind_of_record() -> None:
    image = image_of(broker(1))
    assert image.brokers[1].fenced and not image.brokers[1].alive

    def changed(**fields: Any) -> MetadataImage:
        return after(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, **fields))

    assert changed(fenced=-1).brokers[1].alive
    assert changed(fenced=0).brokers[1].fenced, "0 says nothing"
    assert changed(in_controlled_shutdown=1).brokers[1].in_controlled_shutdown
    assert changed(log_dirs=[ORDERS]).brokers[1].log_dirs == (ORDERS,)
    assert changed(cordoned_log_dirs=[DISK]).brokers[1].cordoned_log_dirs == (DISK,)

    alive = after(image, UnfenceBrokerRecord(id=1, epoch=5))
    assert alive.brokers[1].alive
    assert after(alive, FenceBrokerRecord(id=1, epoch=5)).brokers[1].fenced
    assert not after(alive, UnregisterBrokerRecord(broker_id=1, broker_epoch=5)).brokers


def test_settings_quotas_and_features_go_when_they_are_cleared() -> None:
    user = [EntityData("user", "bob"), EntityData("client-id", None)]
    image = image_of(
        ConfigRecord(BROKER_RESOURCE, "1", "log.retention.ms", "5"),
        ClientQuotaRecord(user, "producer_byte_rate", 1024.0, False),
        FeatureLevelRecord("group.version", 1),
        ProducerIdsRecord(1, 5, 2000),
    )
    assert image.client_quotas == {
        (("client-id", None), ("user", "bob")): {"producer_byte_rate": 1024.0}
    }
    assert image.next_producer_id == 2000
    cleared = after(
        image,
        ConfigRecord(BROKER_RESOURCE, "1", "log.retention.ms", None),
        ClientQuotaRecord(user, "producer_byte_rate", 0.0, True),
        FeatureLevelRecord("group.version", 0),
    )
    assert not cleared.configs and not cleared.client_quotas and not cleared.features


def test_a_transaction_counts_all_at_once_or_not_at_all() -> None:
    begun = image_of(BeginTransactionRecord(name="many"), TopicRecord("orders", ORDERS))
    assert not begun.topics and begun.transaction is not None
    done = after(begun, partition(ORDERS, 0), EndTransactionRecord())
    assert len(done.topics["orders"].partitions) == 1 and done.transaction is None
    aborted = after(begun, AbortTransactionRecord(reason="leader changed"))
    assert not aborted.topics and aborted.transaction is None


@pytest.mark.parametrize(
    "contradiction",
    [
        [partition(ORDERS, 0)],
        [change(0, leader=1)],
        [TopicRecord("orders", ORDERS), change(0, leader=1)],
        [TopicRecord("orders", ORDERS), partition(ORDERS, 1)],
        [RemoveTopicRecord(ORDERS)],
        [UnfenceBrokerRecord(1, 5)],
        [EndTransactionRecord()],
        [BeginTransactionRecord(), BeginTransactionRecord()],
        [ClearElrRecord("orders")],
    ],
)
def test_records_that_contradict_each_other_are_refused(contradiction: list[Any]) -> None:
    with pytest.raises(InconsistentMetadata):
        image_of(*contradiction)


def test_a_snapshot_rebuilds_the_same_image_and_loses_nothing() -> None:
    acl, kept = AccessControlEntryRecord(id=ORDERS), UnknownRecord(99, b"\x01\x63\x00later")
    credential = UserScramCredentialRecord("bob", 1, b"salt", b"key", b"key", 4096)
    image = image_of(
        FeatureLevelRecord("group.version", 1),
        FeatureLevelRecord("metadata.version", 30),
        broker(
            1,
            end_points=[BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0)],
            features=[BrokerFeature("metadata.version", 7, 30)],
            rack="r1",
            cordoned_log_dirs=[],
        ),
        RegisterControllerRecord(controller_id=1, incarnation_id=DISK),
        TopicRecord("orders", ORDERS),
        partition(ORDERS, 1, leader_epoch=7),
        partition(ORDERS, 0),
        change(0, isr=[], leader=NO_LEADER, eligible_leader_replicas=[1], last_known_elr=[1]),
        ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", "1000"),
        ClientQuotaRecord([EntityData("user", None)], "producer_byte_rate", 10.5, False),
        ProducerIdsRecord(1, 5, 3000),
        acl,
        AccessControlEntryRecord(id=VISITS),
        RemoveAccessControlEntryRecord(id=VISITS),
        credential,
        UserScramCredentialRecord("eve", 1, b"", b"", b"", 4096),
        RemoveUserScramCredentialRecord("eve", 1),
        DelegationTokenRecord("owner", "owner", ["r"], 1, 2, 3, "token"),
        DelegationTokenRecord("owner", "owner", ["r"], 1, 2, 3, "dead"),
        RemoveDelegationTokenRecord("dead"),
        ZkMigrationStateRecord(3),
        kept,
    )
    assert image.acls == {ORDERS: acl} and image.scram_credentials == {("bob", 1): credential}
    assert set(image.delegation_tokens) == {"token"} and image.unknown == (kept,)

    written = [encode(record, image.metadata_version) for record in records_of(image)]
    assert decode(written[0]).name == "metadata.version", "it decides how the rest is read"
    rebuilt = MetadataImage(cluster_id="test").apply(
        [decode(value) for value in written], offset=image.offset, epoch=1, wall_ms=1_000
    )
    assert rebuilt == image
