"""DescribeClientQuotas, v0-1: which limits are set, for entities that a filter matches (KIP-546).

A filter names types of entities with a name, with the default (null), or with any name; `strict`
leaves out entities that have further parts. Needs DESCRIBE_CONFIGS on the cluster. v1 flexible.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headrace.node.metadata.image import MetadataImage
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import Guarded, require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import describe_client_quotas as messages
from headrace.wire.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, ANY = 0, 1, 2
TYPES = ("user", "client-id", "ip")


class BrokerWithImage(Guarded, Protocol):
    image: MetadataImage


def handle(
    broker: BrokerWithImage, request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    try:
        require_on_cluster(broker, call, Operation.DESCRIBE_CONFIGS)
        exact, any_name = read_filter(request.components)
    except KafkaError as refusal:
        return DescribeClientQuotasResponse(0, refusal.code, refusal.message, None)
    entries = []
    for entity, limits in broker.image.client_quotas.items():
        parts = dict(entity)
        if request.strict and len(parts) != len(exact) + len(any_name):
            continue
        if not any_name <= parts.keys() or not exact.items() <= parts.items():
            continue
        entries.append(
            EntryData(
                [EntityData(kind, name) for kind, name in entity],
                [ValueData(key, value) for key, value in limits.items()],
            )
        )
    return DescribeClientQuotasResponse(0, ErrorCode.NONE, "", entries)


def read_filter(components: Iterable[ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """Returns types with the name that they must have (None: the default), and types with any
    name."""
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _bad_request("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise _bad_request(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise _bad_request(f"Unknown match type {component.match_type}")
        if (component.match_type == EXACT) != (component.match is not None):
            raise _bad_request("A match string goes with an exact match, and with no other.")
        if component.match_type == ANY:
            any_name.add(kind)
        else:
            exact[kind] = component.match
    named = exact.keys() | any_name
    if "ip" in named and len(named) > 1:
        raise _bad_request(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return exact, any_name


def _bad_request(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)


API = Api(messages=messages, handle=handle, versions=range(0, 2))
