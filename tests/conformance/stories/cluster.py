"""DescribeCluster 0-2, DescribeQuorum 0-2 and UpdateFeatures 0-2."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import describe_cluster, describe_quorum, update_features
from headrace.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from headrace.wire.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.stage import Stage


def brokers(stage: Stage) -> None:
    for version in describe_cluster.VERSIONS:
        for line, request in {
            "plain": DescribeClusterRequest(),
            "operations": DescribeClusterRequest(True),
            "controllers": DescribeClusterRequest(False, 2),
            "unknown endpoints": DescribeClusterRequest(False, 9),
            "fenced": DescribeClusterRequest(False, 1, True),
        }.items():
            if (request.endpoint_type != 1 and version < 1) or (
                request.include_fenced_brokers and version < 2
            ):
                continue
            stage.ask(f"v{version} {line}", describe_cluster, version, request)


def quorum(stage: Stage) -> None:
    for version in describe_quorum.VERSIONS:

        def ask(line: str, name: str, *partitions: int, version: int = version) -> None:
            asked = [RequestPartitionData(partition) for partition in partitions]
            request = DescribeQuorumRequest([RequestTopicData(name, asked)])
            stage.ask(f"v{version} {line}", describe_quorum, version, request)
            without_numbers(stage.answers[f"v{version} {line}"])

        ask("metadata", "__cluster_metadata", 0)
        ask("another partition", "__cluster_metadata", 1)
        ask("two partitions", "__cluster_metadata", 0, 1)
        ask("another topic", "never-was", 0)
        ask("no partitions", "__cluster_metadata")
        stage.ask(f"v{version} nothing", describe_quorum, version, DescribeQuorumRequest())


def without_numbers(answer: Any) -> None:
    """Offsets and epochs of the metadata log depend on what was written and how often it began."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key in ("high_watermark", "log_end_offset", "leader_epoch") and value != -1:
                answer[key] = "some number"
            elif key == "listeners":
                answer[key] = sorted(value)
            else:
                without_numbers(value)


def feature_levels(stage: Stage) -> None:
    for version in update_features.VERSIONS:

        def ask(
            line: str, feature: str, level: int, upgrade_type: int = 1, version: int = version
        ) -> None:
            update = FeatureUpdateKey(feature, level, upgrade_type != 1, upgrade_type)
            request = UpdateFeaturesRequest(10_000, [update], version >= 1)
            stage.ask(f"v{version} {line}", update_features, version, request)

        ask("unknown feature", "no.such.feature", 1)
        ask("the level it has", "metadata.version", 30)
        ask("level too high", "metadata.version", 99)
        ask("level negative", "metadata.version", -1)
        ask("level zero", "metadata.version", 0)
        ask("empty name", "", 1)
        if version >= 1:
            ask("bad kind of upgrade", "metadata.version", 30, 9)
            ask("downgrade called upgrade", "metadata.version", 29)
            ask("safe downgrade", "metadata.version", 29, 2)
            ask("unsafe downgrade", "metadata.version", 29, 3)
            ask("group.version 0", "group.version", 0, 2)
            ask("group.version 1", "group.version", 1)
            ask("transaction.version 1", "transaction.version", 1, 2)
            ask("kraft.version 1", "kraft.version", 1)
            ask("kraft.version 0", "kraft.version", 0, 2)
        stage.ask(f"v{version} nothing", update_features, version, UpdateFeaturesRequest(10_000))


STORIES = (brokers, quorum, feature_levels)
