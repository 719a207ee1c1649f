"""What differs between two images of one cluster, found by identity.

An image shares with its ancestor every part that did not change, so a difference is a part that is
not the same object; nothing is compared in depth. Cost: one pass over each dictionary that changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.metadata.image import MetadataImage, ResourceKey, TopicImage


class TopicChange(NamedTuple):
    """`old` is None for a new topic, `new` for a deleted one; both if its partitions changed.

    A topic deleted and created again under its name is two changes: deletion, then creation.
    """

    old: TopicImage | None
    new: TopicImage | None


def changed_topics(old: MetadataImage, new: MetadataImage) -> Iterator[TopicChange]:
    """Deletions first, so that a name is free before it is used again."""
    if old.topics_by_id is new.topics_by_id:
        return
    for topic_id, topic in old.topics_by_id.items():
        if topic_id not in new.topics_by_id:
            yield TopicChange(topic, None)
    for topic_id, topic in new.topics_by_id.items():
        before = old.topics_by_id.get(topic_id)
        if before is not topic:
            yield TopicChange(before, topic)


def changed_configs(old: MetadataImage, new: MetadataImage) -> Iterator[ResourceKey]:
    """Resources whose own settings changed; a deleted topic's count too."""
    if old.configs is new.configs:
        return
    for key, settings in old.configs.items():
        if new.configs.get(key) is not settings:
            yield key
    for key in new.configs:
        if key not in old.configs:
            yield key
