"""Decisions about settings of topics, brokers, groups and client metrics.

A request names resources; each is decided on its own and answered with its own code, in the order
of the request, and changes all of its settings or none. Codes are Apache's, seen at 4.3.1, with two
exceptions: an unknown operation on a topic is INVALID_REQUEST (Apache: UNKNOWN_SERVER_ERROR), and a
resource named twice in the older AlterConfigs is refused (Apache never answers). The valid values
of a setting are in `metadata/config_validation.py`.

Not done: policies, the eligible leaders that a change of min.insync.replicas would clear (a node of
one has none), levels of loggers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any, NamedTuple

from headrace.node.controller.decision import LARGE_FROM, MOST_RECORDS_PER_BATCH
from headrace.node.metadata.config_definitions import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
)
from headrace.node.metadata.config_definitions.definition import BadValue, ConfigType, Definition
from headrace.node.metadata.config_validation import (
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_configs,
)
from headrace.node.metadata.configs import (
    ALL_BROKERS,
    ResourceType,
    broker_values,
    layers,
    node_id_of,
    topic_defaults,
)
from headrace.node.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from headrace.node.metadata.image import MetadataImage
from headrace.node.metadata.topic_names import require_legal
from headrace.node.steps import at_once
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.config_record import ConfigRecord

CORDON = "cordoned.log.dirs"
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"
ROOT_LOGGER = "root"
MOST_DIGITS = 10  # of a broker's id


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One setting that a client wants to change."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """One resource as a client names it, with the wanted changes."""

    type: int
    name: str
    alterations: Sequence[Alteration]


class Outcome(NamedTuple):
    """The outcome for one resource; `code` is NONE, without a message, if it succeeded."""

    type: int
    name: str
    code: ErrorCode
    message: str | None


Settings = Mapping[str, str]
# The new settings of a resource: its present ones with the wanted changes.
Change = Callable[[Resource, Settings], dict[str, str]]
# Raises the refusal of a client that may not change the resource.
RequireMay = Callable[[Resource], None]
# Raises BadValue for settings of this broker, all of them, that it could not use.
RequireUsable = Callable[[Settings], None]
Rule = Callable[[MetadataImage, Settings, Resource, Settings], None]


class Judge(NamedTuple):
    """The rules for changes of settings, and the values that could not be used."""

    require_may: RequireMay
    require_usable: RequireUsable


@dataclass(slots=True)
class Alterations:
    """The decision of a whole request: records to write, and an outcome per resource."""

    records: list[ConfigRecord]
    outcomes: list[Outcome]


def _everybody_may(resource: Resource) -> None:
    """Used if there is no authorizer."""


def _all_are_usable(settings: Settings) -> None:
    """Used if no running part depends on the settings."""


def alter_incrementally(
    image: MetadataImage,
    given: Settings,
    resources: Sequence[Resource],
    *,
    validate_only: bool,
    require_may: RequireMay = _everybody_may,
    require_usable: RequireUsable = _all_are_usable,
) -> Alterations:
    """IncrementalAlterConfigs: each named setting is set, deleted, or its list changed."""
    judge = Judge(require_may, require_usable)
    return alter(image, given, resources, changed, judge, validate_only)


def replace_all(
    image: MetadataImage,
    given: Settings,
    resources: Sequence[Resource],
    *,
    validate_only: bool,
    require_may: RequireMay = _everybody_may,
    require_usable: RequireUsable = _all_are_usable,
) -> Alterations:
    """AlterConfigs, the older request: settings that are not named are deleted."""
    judge = Judge(require_may, require_usable)
    return alter(image, given, resources, replaced, judge, validate_only)


def is_large(resources: Sequence[Resource]) -> bool:
    """Returns whether it is decided in slices; a resource without settings is work too."""
    return len(resources) + sum(len(each.alterations) for each in resources) >= LARGE_FROM


def refuse_all(resources: Sequence[Resource], refusal: KafkaError) -> list[Outcome]:
    """Returns refusals: nothing of the request was done."""
    return [Outcome(r.type, r.name, refusal.code, refusal.message) for r in resources]


def late(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The time of a request is up before its changes are committed; refusals stay unchanged."""
    code = ErrorCode.REQUEST_TIMED_OUT
    return [
        outcome if outcome.code else outcome._replace(code=code, message=code.description)
        for outcome in outcomes
    ]


def alter(
    image: MetadataImage,
    given: Settings,
    resources: Sequence[Resource],
    change: Change,
    judge: Judge,
    validate_only: bool,
) -> Alterations:
    return at_once(alter_in_steps(image, given, resources, change, judge, validate_only))


def alter_in_steps(
    image: MetadataImage,
    given: Settings,
    resources: Sequence[Resource],
    change: Change,
    judge: Judge,
    validate_only: bool,
) -> Generator[None, None, Alterations]:
    """`change` returns the new settings of a resource."""
    times = Counter((resource.type, resource.name) for resource in resources)
    # Equal for all topics, and most of the work for one: computed once, if there is a topic.
    defaults = cache(lambda: topic_defaults(given, image.configs))
    rules: dict[int, Rule] = {**_RULES, ResourceType.TOPIC: partial(_require_topic, defaults)}
    records: list[ConfigRecord] = []
    outcomes: list[Outcome] = []
    for resource in resources:
        yield
        code, message = ErrorCode.NONE, None
        try:
            if times[resource.type, resource.name] > 1:
                raise _bad_request("A resource may be named once in a request.")
            records += _alter_resource(image, given, resource, change, judge, rules)
        except KafkaError as refusal:
            code, message = refusal.code, refusal.message
        outcomes.append(Outcome(resource.type, resource.name, code, message))
    if len(records) > MOST_RECORDS_PER_BATCH:
        # One batch or none: half a request must not survive a crash.
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may change {MOST_RECORDS_PER_BATCH} settings, not {len(records)}.",
        )
    return Alterations([] if validate_only else records, outcomes)


def _alter_resource(
    image: MetadataImage,
    given: Settings,
    resource: Resource,
    change: Change,
    judge: Judge,
    rules: Mapping[int, Rule],
) -> list[ConfigRecord]:
    _require_clear_request(resource)
    this_node = node_id_of(given)
    stored_as = _stored_name(image, resource, this_node)
    judge.require_may(resource)
    now = image.config(resource.type, stored_as)
    wanted = change(resource, now)
    rules[ResourceType(resource.type)](image, given, resource, wanted)
    if resource.type == ResourceType.BROKER and stored_as in (str(this_node), ALL_BROKERS):
        # The start settings of another broker are not known here: that broker has checked the
        # changes before it forwarded the request (`refused_by_this_broker`).
        try:
            own = _of_this_broker(image, given, stored_as, wanted)
            if CORDON in {alteration.name for alteration in resource.alterations}:
                _require_own_folders(own)
            judge.require_usable(own)
        except BadValue as fault:
            raise _bad_request(str(fault)) from None
    names = dict.fromkeys((*now, *(alteration.name for alteration in resource.alterations)))
    touched = {alteration.name for alteration in resource.alterations}
    return [
        ConfigRecord(
            resource_type=resource.type, resource_name=stored_as, name=name, value=wanted.get(name)
        )
        for name in names
        # A broker's setting is written again though unchanged: then the broker loads it again.
        if now.get(name) != wanted.get(name)
        or (resource.type == ResourceType.BROKER and name in touched)
    ]


def _of_this_broker(
    image: MetadataImage, given: Settings, changed: str, wanted: Settings
) -> dict[str, str]:
    """Returns the settings that the broker would have if one of its two resources had `wanted`."""
    kept: dict[tuple[int, str], Settings] = {
        (ResourceType.BROKER, name): image.config(ResourceType.BROKER, name)
        for name in (str(node_id_of(given)), ALL_BROKERS)
    }
    kept[ResourceType.BROKER, changed] = wanted
    weakest_first = reversed(layers(given, kept))
    return {name: text for each in weakest_first for name, text in each.settings.items()}


def _require_own_folders(settings: Settings) -> None:
    """A misspelled folder would go on getting new partitions."""
    cordoned, folders, folder = (
        {path.rstrip("/") for path in BROKER_SETTINGS[name].parse(settings[name]) or ()}
        if name in settings
        else set()
        for name in (CORDON, "log.dirs", "log.dir")
    )
    strange = sorted(cordoned - (folders or folder) - {"*"})
    if strange:
        raise BadValue(
            f"{CORDON} names {', '.join(strange)}, which is not in log.dirs "
            f"({', '.join(sorted(folders or folder))}); * names all."
        )


def _require_clear_request(resource: Resource) -> None:
    times = Counter(alteration.name for alteration in resource.alterations)
    if len(times) < len(resource.alterations):
        raise _bad_request("A setting may be named once for a resource.")
    without = [
        alteration.name
        for alteration in resource.alterations
        if alteration.value is None and alteration.operation != Operation.DELETE
    ]
    if without:
        raise _bad_request(f"There is no value for {', '.join(without)}.")
    if resource.type != ResourceType.TOPIC and resource.type not in _RULES:
        raise _unknown_type(resource)


def _stored_name(image: MetadataImage, resource: Resource, node_id: int) -> str:
    """Brokers are named by their own id or all at once; other resources by their unchanged name."""
    if not _is_of_one_broker(resource):
        return resource.name
    number = _node_number(resource.name)
    if number != node_id and number not in image.brokers and number not in image.controllers:
        raise _bad_request(f"This is broker {node_id}, not {resource.name}; ask that one.")
    return str(number)


def _is_of_one_broker(resource: Resource) -> bool:
    return resource.type == ResourceType.BROKER_LOGGER or (
        resource.type == ResourceType.BROKER and resource.name != ALL_BROKERS
    )


def _node_number(name: str) -> int:
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal() or len(digits) > MOST_DIGITS:
        raise _bad_request(f"A broker is named by its id, a number, not by '{name}'.")
    return int(name)


def refused_by_this_broker(
    image: MetadataImage,
    given: Settings,
    resources: Sequence[Resource],
    change: Change,
    judge: Judge,
) -> list[Outcome] | None:
    """Changes that the receiving broker refuses before the controller sees them, as Apache's
    brokers do: settings of another broker, and its own that it could not use. None: nothing.

    The request is forwarded whole or not at all, so one refusal applies to all of its resources.
    """
    concerning = [resource for resource in resources if _is_of_one_broker(resource)]
    if not concerning:
        return None
    this_node = node_id_of(given)
    for resource in concerning:
        try:
            if _node_number(resource.name) != this_node:
                raise _bad_request(
                    f"This is broker {this_node}, not {resource.name}; ask that one."
                )
        except KafkaError as refusal:
            return _refused_for_one(resources, resource, refusal)
    judged = alter(image, given, concerning, change, judge, validate_only=True)
    for resource, outcome in zip(concerning, judged.outcomes, strict=True):
        if outcome.code != ErrorCode.NONE:
            return _refused_for_one(resources, resource, KafkaError(outcome.code, outcome.message))
    return None


def _refused_for_one(
    resources: Sequence[Resource], wrong: Resource, refusal: KafkaError
) -> list[Outcome]:
    others = _bad_request(f"Nothing was changed: broker {wrong.name} was refused.")
    return [
        refuse_all([resource], refusal if resource is wrong else others)[0]
        for resource in resources
    ]


# ---- the settings after a request ----------------------------------------------------------------

_SPLITTABLE: dict[int, Mapping[str, Definition]] = {
    ResourceType.TOPIC: TOPIC_SETTINGS,
    ResourceType.BROKER: BROKER_SETTINGS,
    ResourceType.GROUP: GROUP_SETTINGS,
    # Apache appends nothing to the lists of client metrics either.
    ResourceType.CLIENT_METRICS: {},
}


def changed(resource: Resource, now: Settings) -> dict[str, str]:
    wanted = dict(now)
    for alteration in resource.alterations:
        value = alteration.value or ""
        match alteration.operation:
            case Operation.SET:
                wanted[alteration.name] = value
            case Operation.DELETE:
                wanted.pop(alteration.name, None)
            case Operation.APPEND:
                items = _list_of(resource, alteration.name, now)
                wanted[alteration.name] = ",".join(dict.fromkeys((*items, *value.split(","))))
            case Operation.SUBTRACT:
                items = _list_of(resource, alteration.name, now)
                left = [item for item in items if item not in value.split(",")]
                wanted[alteration.name] = ",".join(left)
            case unknown:
                raise _bad_request(f"There is no operation {unknown} on a setting.")
    return wanted


def replaced(resource: Resource, now: Settings) -> dict[str, str]:
    if resource.type == ResourceType.BROKER_LOGGER:
        raise _unknown_type(resource)
    return {alteration.name: alteration.value or "" for alteration in resource.alterations}


def _list_of(resource: Resource, name: str, now: Settings) -> list[str]:
    """Returns the present entries of a list: its own, or those of the default."""
    if resource.type == ResourceType.BROKER_LOGGER:
        raise _bad_request("The level of a logger is not a list.")
    definition = _SPLITTABLE[resource.type].get(name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list of values.")
    text = now.get(name, definition.format(definition.default) or "")
    return [item for item in text.split(",") if item]


# ---- the settings that may be stored
# ---------------------------------------------------------------


def _require_topic(
    defaults: Callable[[], Mapping[str, Any]],
    image: MetadataImage,
    given: Settings,
    resource: Resource,
    wanted: Settings,
) -> None:
    if not resource.name:
        raise _bad_request("There are no settings of all topics; set those of all brokers.")
    require_legal(resource.name)
    validate_topic_configs(wanted, defaults())
    if resource.name not in image.topics:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named '{resource.name}'."
        )


def _require_broker(
    image: MetadataImage, given: Settings, resource: Resource, wanted: Settings
) -> None:
    of_one = resource.name != ALL_BROKERS
    current = broker_values(given, image.configs)
    validate_broker_configs(wanted, of_one_broker=of_one, current=current)
    if image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        # The election of a leader when all others are gone depends on a number that all brokers
        # share (KIP-966).
        named = {alteration.name for alteration in resource.alterations}
        if of_one and MIN_IN_SYNC_REPLICAS in named:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_IN_SYNC_REPLICAS} can only be set for all brokers or for a topic.",
            )
        now = image.config(ResourceType.BROKER, ALL_BROKERS)
        if not of_one and MIN_IN_SYNC_REPLICAS in now and MIN_IN_SYNC_REPLICAS not in wanted:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_IN_SYNC_REPLICAS} of all brokers can be changed and not removed.",
            )


def _require_group(
    image: MetadataImage, given: Settings, resource: Resource, wanted: Settings
) -> None:
    if not resource.name:
        raise _bad_request("There are no settings of all groups; set those of the broker.")
    validate_group_configs(wanted, broker_values(given, image.configs))


def _require_client_metrics(
    image: MetadataImage, given: Settings, resource: Resource, wanted: Settings
) -> None:
    if not resource.name:
        raise _bad_request("A subscription to client metrics needs a name.")
    validate_client_metrics_configs(wanted)


def _require_logger(
    image: MetadataImage, given: Settings, resource: Resource, wanted: Settings
) -> None:
    for alteration in resource.alterations:
        if alteration.name == ROOT_LOGGER and alteration.operation == Operation.DELETE:
            raise _bad_request("The level of the root logger cannot be removed.")
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"There is no logger named {alteration.name} to change."
        )


# Rules for topics depend on the request (`alter`).
_RULES: dict[int, Rule] = {
    ResourceType.BROKER: _require_broker,
    ResourceType.BROKER_LOGGER: _require_logger,
    ResourceType.GROUP: _require_group,
    ResourceType.CLIENT_METRICS: _require_client_metrics,
}


def _unknown_type(resource: Resource) -> KafkaError:
    return _bad_request(f"Settings of resources of type {resource.type} cannot be changed here.")


def _bad_request(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)
