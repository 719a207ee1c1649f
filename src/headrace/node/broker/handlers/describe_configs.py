"""DescribeConfigs, v1-4: settings of topics, brokers, groups and client metrics.

A null or empty list of names asks for all; names that do not exist are left out. Passwords are
never shown. Each resource has its own error; named twice it is answered once, so that a small
request has no endless answer. v1 sources and synonyms (KIP-226). v3 types and documentation
(KIP-569). v4 flexible. Needs DESCRIBE_CONFIGS on the topic or group, for everything else on the
cluster. A topic with damaged records, or whose logs a start had to cut, shows them as settings that
can only be read. Not done: loggers (a broker shows that it has none).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Protocol

from headrace.node.broker.replicas.topics import Topic, Topics
from headrace.node.metadata import config_descriptions
from headrace.node.metadata.config_definitions.definition import ConfigType
from headrace.node.metadata.config_descriptions import Description, Wanted
from headrace.node.metadata.configs import ALL_BROKERS, ResourceType, Source
from headrace.node.metadata.image import MetadataImage
from headrace.node.metadata.topic_names import require_legal
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import CLUSTER, GROUP, TOPIC, Guarded, require
from headrace.node.steps import at_once
from headrace.wire.protocol.acls import CLUSTER_NAME, Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import describe_configs as messages
from headrace.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

# The resources on which rights are checked; everything else is the cluster's.
OF_THEIR_OWN = {int(ResourceType.TOPIC): TOPIC, int(ResourceType.GROUP): GROUP}
# The settings of 5,500 topics. A request of 4 MB could otherwise ask for a hundred million.
MOST_SETTINGS = 200_000
DAMAGED = "headrace.damaged.offsets"
CUT = "headrace.cut.offsets"
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


class ConfiguredBroker(Guarded, Protocol):
    """The parts of a broker that DescribeConfigs needs."""

    node_id: int
    image: MetadataImage
    given: Mapping[str, str]  # the settings that it was started with
    topics: Topics


def handle(
    broker: ConfiguredBroker, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResponse:
    return at_once(handle_large(broker, request, call))


def handle_large(
    broker: ConfiguredBroker, request: DescribeConfigsRequest, call: Call
) -> Generator[None, None, DescribeConfigsResponse]:
    named: dict[tuple[int, str], DescribeConfigsResource] = {}
    for wanted in request.resources:
        yield
        named.setdefault((wanted.resource_type, wanted.resource_name), wanted)
    results: list[DescribeConfigsResult] = []
    settings = 0
    for wanted in named.values():
        yield
        result = _result(broker, wanted, request, call, has_room=settings < MOST_SETTINGS)
        settings += len(result.configs)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _result(
    broker: ConfiguredBroker,
    wanted: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    call: Call,
    *,
    has_room: bool,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=wanted.resource_type, resource_name=wanted.resource_name
    )
    try:
        _require_may_describe(broker, wanted, call)
        if not has_room:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"One answer tells {MOST_SETTINGS} settings at most; ask for the rest again.",
            )
        described = _describe(broker, wanted)
    except KafkaError as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
    else:
        result.configs = [_entry(found, request) for found in described]
    return result


def _require_may_describe(
    broker: ConfiguredBroker, wanted: DescribeConfigsResource, call: Call
) -> None:
    resource = OF_THEIR_OWN.get(wanted.resource_type, CLUSTER)
    name = CLUSTER_NAME if resource is CLUSTER else wanted.resource_name
    require(broker, call, Operation.DESCRIBE_CONFIGS, resource, name)


def _describe(broker: ConfiguredBroker, wanted: DescribeConfigsResource) -> list[Description]:
    names = set(wanted.configuration_keys or ())
    asked: Wanted = names.__contains__ if names else lambda _: True
    configs, name = broker.image.configs, wanted.resource_name
    match wanted.resource_type:
        case ResourceType.TOPIC:
            require_legal(name)
            if name not in broker.image.topics:
                # Apache leaves the sentence out.
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            described = config_descriptions.of_topic(broker.given, configs, name, asked)
            return described + damage_of(broker.topics.by_name.get(name), asked)
        case ResourceType.BROKER:
            if name == ALL_BROKERS:
                return config_descriptions.of_all_brokers(configs, asked)
            _require_this_broker(broker, name)
            return config_descriptions.of_broker(broker.given, configs, asked)
        case ResourceType.BROKER_LOGGER:
            _require_this_broker(broker, name)
            return []
        case ResourceType.GROUP:
            _require_name(name, "A group")
            return config_descriptions.of_group(broker.given, configs, name, asked)
        case ResourceType.CLIENT_METRICS:
            _require_name(name, "A subscription to client metrics")
            return config_descriptions.of_client_metrics(configs, name, asked)
        case other:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Resources of type {other} have no settings."
            )


def damage_of(topic: Topic | None, asked: Wanted) -> list[Description]:
    """Returns `partition:first-last` of damaged offsets and `partition:first+bytes` of what this
    start cut.

    Every Kafka client can describe a topic's settings. Returns nothing if nothing is damaged.
    """
    logs = [] if topic is None else [(leader.index, leader.log) for leader in topic.here()]
    damaged = [
        f"{index}:{each.first_offset}-{min(each.next_offset, log.end_offset) - 1}"
        for index, log in logs
        for each in log.segments.damage()
    ]
    cut = [f"{i}:{log.cut.first_offset}+{log.cut.size}" for i, log in logs if log.cut is not None]
    return [
        Description(name, ",".join(found), Source.DEFAULT, True, False, ConfigType.STRING, about)
        for name, found, about in (
            (DAMAGED, damaged, "Offsets that are damaged on the disk, by partition."),
            (CUT, cut, "First offset and bytes that the last start cut from the end."),
        )
        if found and asked(name)
    ]


def _require_this_broker(broker: ConfiguredBroker, name: str) -> None:
    if _NUMBER.fullmatch(name) is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"A broker is named by its id, a number, not by '{name}'."
        )
    if int(name) != broker.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"This is broker {broker.node_id}, not {name}; ask that one."
        )


def _require_name(name: str, what: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} needs a name.")


def _entry(found: Description, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = found.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=found.name,
        value=found.value,
        read_only=found.read_only,
        config_source=found.source,
        is_sensitive=found.sensitive,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in synonyms],
        config_type=found.type,
        documentation=found.documentation if request.include_documentation else None,
    )


API = Api(messages=messages, handle=handle, versions=range(1, 5), handle_large=handle_large)
