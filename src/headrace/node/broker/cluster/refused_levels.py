"""Finds why a controller refused this broker with UNSUPPORTED_VERSION: levels above what it serves.

The refusal has no text, so the sentence comes from the metadata. A broker that was registered at
such a level before may go on: folders of early releases have finalized streams.version 1, which
could not be lowered if none of their brokers came up.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.node.metadata.features import (
    METADATA_VERSION,
    NOT_SERVED,
    SERVED_FEATURES,
    SUPPORTED_FEATURES,
    LevelRange,
)
from headrace.node.metadata.image import MetadataImage

NONE = LevelRange(0, 0)


@dataclass(slots=True)
class RefusedLevels:
    sentence: str  # what is above, and the command that lowers it
    # What to register instead, by feature; None: the broker must not join.
    instead: dict[str, LevelRange] | None = None


def knows_enough(image: MetadataImage, committed_up_to: int) -> bool:
    """Returns whether the image can tell why this broker was refused. `committed_up_to` is where
    the leader's committed records end, as far as this node has heard: an old snapshot has levels
    and may lack this broker."""
    return image.metadata_version > 0 and image.offset + 1 >= committed_up_to


def refused_levels(image: MetadataImage, broker_id: int) -> RefusedLevels | None:
    """Returns None if nothing is above what this node serves, as far as `image` shows."""
    above = {
        name: level
        for name, level in sorted(image.finalized_features.items())
        if level > SERVED_FEATURES.get(name, NONE).highest
    }
    if not above:
        return None
    sentence = "; ".join(_sentence(name, level) for name, level in above.items())
    former = image.brokers.get(broker_id)
    was_member = former is not None and all(
        level <= min(former.features.get(name, NONE)[1], SUPPORTED_FEATURES.get(name, NONE)[1])
        for name, level in above.items()
    )
    return RefusedLevels(sentence, SUPPORTED_FEATURES if was_member else None)


def _sentence(name: str, level: int) -> str:
    highest = SERVED_FEATURES.get(name, NONE).highest
    found = f"the cluster has finalized {name} at level {level}, and this node serves level "
    if name == METADATA_VERSION:
        return f"{found}{highest}: it needs a newer version of Headrace"
    stop = f", so {NOT_SERVED[name]} would stop" if name in NOT_SERVED else ""
    return (
        f"{found}{highest}{stop}. Lower it with `headrace brokers features {name}={highest}` "
        f"(or `kafka-features downgrade --feature {name}={highest}`), then start this node again"
    )
