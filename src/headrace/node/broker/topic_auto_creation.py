"""Creates missing topics of a Metadata request, if both the client and the broker allow it.

Does not create internal topics, which their coordinators create, nor those of our own services,
which create them with their settings. Skips names that are not legal.
"""

from __future__ import annotations

from collections.abc import Generator

from headrace.node.broker.broker import Broker
from headrace.node.metadata.topic_names import INTERNAL_TOPICS, is_of_services, require_legal
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages.metadata import MetadataRequest
from headrace.wire.protocol.primitives import ZERO_ID


def is_legal(name: str) -> bool:
    try:
        require_legal(name)
    except KafkaError:
        return False
    return True


def missing_topics(broker: Broker, request: MetadataRequest) -> Generator[None, None, list[str]]:
    """Returns the names that are to be created before this request is answered."""
    if not request.allow_auto_topic_creation or not broker.values["auto.create.topics.enable"]:
        return []
    missing = []
    for topic in request.topics or ():
        yield
        name = topic.name
        if name is None or topic.topic_id != ZERO_ID or name in broker.image.topics:
            continue
        if name not in INTERNAL_TOPICS and not is_of_services(name) and is_legal(name):
            missing.append(name)
    return missing
