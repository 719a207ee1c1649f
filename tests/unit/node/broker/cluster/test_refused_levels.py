"""Levels of a cluster above what this node serves, and the sentences about them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.broker.cluster import refused_levels as module
from headrace.node.broker.cluster.refused_levels import knows_enough, refused_levels
from headrace.node.controller.members import brokers
from headrace.node.metadata.features import SERVED_FEATURES, SUPPORTED_FEATURES, LevelRange
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.register_broker_record import (
    BrokerFeature,
    RegisterBrokerRecord,
)


def image_with(*levels: tuple[str, int], member: bool = False) -> MetadataImage:
    records: list[Any] = [FeatureLevelRecord(name, level) for name, level in levels]
    if member:
        known = [BrokerFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()]
        records.append(RegisterBrokerRecord(broker_id=4, broker_epoch=1, features=known))
    return MetadataImage(cluster_id="test").apply(records, offset=0, epoch=1, wall_ms=0)


@pytest.fixture
def without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if streams groups were not served."""
    served = {name: levels for name, levels in SERVED_FEATURES.items() if name != "streams.version"}
    monkeypatch.setattr(module, "NOT_SERVED", {"streams.version": "streams groups"})
    monkeypatch.setattr(module, "SERVED_FEATURES", served)
    monkeypatch.setattr(brokers, "SERVED_FEATURES", served)


def test_nothing_is_above_what_is_served() -> None:
    assert refused_levels(image_with(("metadata.version", 30), ("share.version", 1)), 4) is None


@pytest.mark.usefixtures("without_streams")
def test_a_level_that_is_not_served_names_the_command_that_lowers_it() -> None:
    found = refused_levels(image_with(("streams.version", 1)), 4)
    assert found is not None and found.instead is None
    assert found.sentence == (
        "the cluster has finalized streams.version at level 1, and this node serves level 0, so "
        "streams groups would stop. Lower it with `headrace brokers features streams.version=0` "
        "(or `kafka-features downgrade --feature streams.version=0`), then start this node again"
    )


def test_a_later_level_is_lowered_to_the_highest_that_is_served() -> None:
    found = refused_levels(image_with(("share.version", 2)), 4)
    assert found is not None and "`headrace brokers features share.version=1`" in found.sentence


def test_metadata_version_never_goes_down() -> None:
    found = refused_levels(image_with(("metadata.version", 33)), 4)
    assert found is not None and found.sentence.endswith("30: it needs a newer version of Headrace")


@pytest.mark.usefixtures("without_streams")
def test_a_former_member_goes_on_with_a_level_that_it_understands() -> None:
    found = refused_levels(image_with(("streams.version", 1), member=True), 4)
    assert found is not None and found.instead == SUPPORTED_FEATURES
    found = refused_levels(image_with(("share.version", 2), member=True), 4)
    assert found is not None and found.instead is None


def test_a_node_registers_exactly_what_it_serves() -> None:
    assert SERVED_FEATURES == SUPPORTED_FEATURES
    assert SERVED_FEATURES["share.version"] == LevelRange(0, 1)
    me = brokers.Membership(1, bytes(16), (), (), (b"d" * 16,))
    [controller] = brokers.register_controller(me)
    assert {feature.name for feature in controller.features} == SERVED_FEATURES.keys()
    [broker] = brokers.register_broker(image_with(("metadata.version", 30)), me, 0)
    assert {feature.name for feature in broker.features} == SERVED_FEATURES.keys()


@pytest.mark.usefixtures("without_streams")
def test_a_folder_that_has_the_level_starts_alone() -> None:
    me = brokers.Membership(1, bytes(16), (), (), (b"d" * 16,))
    [broker] = brokers.register_broker(image_with(("streams.version", 1)), me, 0)
    assert {feature.name for feature in broker.features} == SUPPORTED_FEATURES.keys()


def test_an_old_snapshot_does_not_tell_who_was_a_member() -> None:
    image = image_with(("metadata.version", 30), ("streams.version", 1))
    assert knows_enough(image, -1) and knows_enough(image, image.offset + 1)
    assert not knows_enough(image, image.offset + 2)
    assert not knows_enough(MetadataImage(cluster_id="test"), 0)
