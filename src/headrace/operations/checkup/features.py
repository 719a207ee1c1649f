"""Checks whether the cluster promises features that it does not serve. Pure: it judges levels."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.client.admin.features import Feature
from headrace.operations.checkup.finding import Finding, watch


def check_features(features: Sequence[Feature]) -> list[Finding]:
    """Compare levels with served APIs. Data folders of the first releases, and those that Apache
    Kafka made, have share.version=1 and streams.version=1: clients then believe that share groups
    and streams groups are available."""
    empty = [one.name for one in features if one.level > 0 and not one.served]
    if not empty:
        return []
    lower = " ".join(f"{name}=0" for name in empty)
    return [
        watch(
            "features",
            f"{' and '.join(empty)} announce groups that this cluster does not support",
            f"Lower them: headrace brokers features {lower}",
        )
    ]
