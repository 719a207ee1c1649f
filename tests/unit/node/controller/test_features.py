"""Feature levels: up as far as everybody understands, down only when asked for."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.controller import features
from headrace.node.controller.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from headrace.node.metadata.features import NEW_CLUSTER_LEVELS, SUPPORTED_FEATURES
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.register_broker_record import (
    BrokerFeature,
    RegisterBrokerRecord,
)


def cluster(*levels: tuple[str, int], broker_group_version: int = 1) -> MetadataImage:
    supported = [
        BrokerFeature(name, levels.lowest, levels.highest)
        for name, levels in SUPPORTED_FEATURES.items()
        if name != "group.version"
    ]
    supported.append(BrokerFeature("group.version", 0, broker_group_version))
    return MetadataImage(cluster_id="test").apply(
        [
            RegisterBrokerRecord(broker_id=1, broker_epoch=1, features=supported),
            *(FeatureLevelRecord(name, level) for name, level in levels),
        ],
        offset=0,
        epoch=1,
        wall_ms=0,
    )


def change_level(
    image: MetadataImage, name: str, level: int, kind: int, kraft_version: int = 1
) -> list[Any]:
    return features.change_level(
        image, name, level, kind, kraft_version=kraft_version, min_in_sync_replicas=2
    )


def test_a_new_cluster_begins_within_what_is_supported() -> None:
    for name, level in NEW_CLUSTER_LEVELS:
        assert SUPPORTED_FEATURES[name].lowest <= level <= SUPPORTED_FEATURES[name].highest


def test_a_level_rises_and_falls() -> None:
    image = cluster(("transaction.version", 1))
    assert change_level(image, "transaction.version", 2, UPGRADE) == [
        FeatureLevelRecord("transaction.version", 2)
    ]
    assert change_level(image, "transaction.version", 1, UPGRADE) == [], "it is there already"
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        assert change_level(image, "transaction.version", 0, kind) == [
            FeatureLevelRecord("transaction.version", 0)
        ]


def test_eligible_leaders_need_one_minimum_for_the_cluster() -> None:
    records = change_level(cluster(), "eligible.leader.replicas.version", 1, UPGRADE)
    assert records[1:] == [ConfigRecord(4, "", "min.insync.replicas", "2")]


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("unheard.of", 1, UPGRADE),
        ("transaction.version", 3, UPGRADE),
        ("transaction.version", -1, UPGRADE),
        ("transaction.version", 1, UPGRADE),
        ("transaction.version", 1, 0),
        ("group.version", 1, SAFE_DOWNGRADE),
        ("metadata.version", 29, SAFE_DOWNGRADE),
        ("metadata.version", 29, UNSAFE_DOWNGRADE),
        ("metadata.version", 31, UPGRADE),
        ("kraft.version", 0, SAFE_DOWNGRADE),
        ("kraft.version", 2, UPGRADE),
    ],
)
def test_changes_that_are_refused(name: str, level: int, kind: int) -> None:
    image = cluster(("metadata.version", 30), ("transaction.version", 2))
    with pytest.raises(KafkaError) as refusal:
        change_level(image, name, level, kind)
    assert refusal.value.code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_broker_that_does_not_understand_holds_the_level_down() -> None:
    with pytest.raises(KafkaError, match="broker 1"):
        change_level(cluster(broker_group_version=0), "group.version", 1, UPGRADE)


def test_the_level_of_the_quorum_is_its_own() -> None:
    assert change_level(cluster(), "kraft.version", 1, UPGRADE) == [], "it is there already"
    with pytest.raises(KafkaError, match="voters are configured"):
        change_level(cluster(), "kraft.version", 1, UPGRADE, kraft_version=0)
