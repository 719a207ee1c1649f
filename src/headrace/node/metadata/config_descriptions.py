"""Settings as DescribeConfigs shows them: value, source, and synonyms.

The listed synonyms, and their order, follow the answers of Apache Kafka 4.3, including that a
topic's value which comes from a broker's second choice (`log.retention.hours`) is shown as a
default without synonyms. Values of passwords and of unknown settings are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.node.metadata.config_definitions import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
)
from headrace.node.metadata.config_definitions.definition import (
    BadValue,
    Change,
    ConfigType,
    Definition,
)
from headrace.node.metadata.config_validation import dynamic_definition
from headrace.node.metadata.configs import (
    ALL_BROKERS,
    Configs,
    Layer,
    ResourceType,
    Source,
    group_values,
    layers,
    topic_values,
)

# Broker's settings with the same meaning, mostly in other units; best first.
_FAMILIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("log.roll.ms", "log.roll.hours"), ("log.roll.ms", "log.roll.hours")),
    **dict.fromkeys(
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    **dict.fromkeys(
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


class ConfigSynonym(NamedTuple):
    """One place that gives a value, best first in a list."""

    name: str
    value: str | None
    source: Source


@dataclass(slots=True)
class Description:
    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: ConfigType
    documentation: str | None
    synonyms: list[ConfigSynonym] = field(default_factory=list)


Wanted = Callable[[str], bool]  # whether a client asked for this name


def of_topic(
    static: Mapping[str, str], configs: Configs, topic: str, wanted: Wanted
) -> list[Description]:
    own = configs.get((ResourceType.TOPIC, topic), {})
    values = topic_values(static, configs, topic)
    found = layers(static, configs)
    described = []
    for name in _names(TOPIC_SETTINGS, own, wanted):
        definition = TOPIC_SETTINGS.get(name)
        if definition is None:
            described.append(_unknown(name, Source.TOPIC, read_only=False))
            continue
        value = definition.format(
            definition.parse(own[name]) if definition.internal else values[name]
        )
        synonyms = [ConfigSynonym(name, value, Source.TOPIC)] if name in own else []
        if definition.synonyms:
            synonyms += _broker_synonyms(definition.synonyms[0].name, found)
        described.append(_description(definition, value, synonyms))
    return described


def of_broker(static: Mapping[str, str], configs: Configs, wanted: Wanted) -> list[Description]:
    found = layers(static, configs)
    given = [name for layer in found for name in layer.settings]
    described = []
    for name in _names(BROKER_SETTINGS, given, wanted):
        definition = dynamic_definition(name)
        if definition is None:
            source = next(layer.source for layer in found if name in layer.settings)
            described.append(_unknown(name, source, read_only=True))
            continue
        synonyms = _broker_synonyms(name, found)
        value = _effective(definition, found)
        described.append(
            _description(
                definition, definition.format(value), synonyms, read_only=_fixed(definition)
            )
        )
    return described


def of_all_brokers(configs: Configs, wanted: Wanted) -> list[Description]:
    """The settings for all brokers that were changed while they run; nothing else is shown."""
    own = configs.get((ResourceType.BROKER, ALL_BROKERS), {})
    described = []
    for name in filter(wanted, own):
        definition = dynamic_definition(name)
        if definition is None:
            described.append(_unknown(name, Source.ALL_BROKERS, read_only=True))
        else:
            value = None if definition.sensitive else own[name]
            synonyms = [ConfigSynonym(name, value, Source.ALL_BROKERS)]
            described.append(
                _description(definition, value, synonyms, read_only=_fixed(definition))
            )
    return described


def of_group(
    static: Mapping[str, str], configs: Configs, group: str, wanted: Wanted
) -> list[Description]:
    own = configs.get((ResourceType.GROUP, group), {})
    values = group_values(static, configs, group)
    found = layers(static, configs)
    described = []
    for name in _names(GROUP_SETTINGS, own, wanted):
        definition = GROUP_SETTINGS.get(name)
        if definition is None:
            described.append(_unknown(name, Source.GROUP, read_only=False))
            continue
        value = definition.format(values[name])
        synonyms = [ConfigSynonym(name, value, Source.GROUP)] if name in own else []
        if definition.synonyms:
            synonyms += _broker_synonyms(definition.synonyms[0].name, found)
        else:
            synonyms.append(
                ConfigSynonym(name, definition.format(definition.default), Source.DEFAULT)
            )
        described.append(_description(definition, value, synonyms))
    return described


def of_client_metrics(configs: Configs, subscription: str, wanted: Wanted) -> list[Description]:
    own = configs.get((ResourceType.CLIENT_METRICS, subscription), {})
    described = []
    for name in filter(wanted, CLIENT_METRICS_SETTINGS):
        definition = CLIENT_METRICS_SETTINGS[name]
        value = own.get(name, definition.format(definition.default))
        synonyms = [ConfigSynonym(name, value, Source.CLIENT_METRICS)] if name in own else []
        described.append(_description(definition, value, synonyms))
    return described


def _names(table: Mapping[str, Definition], given: Iterable[str], wanted: Wanted) -> Iterable[str]:
    """All settings of the table but internal ones, and whatever else was given."""
    names = dict.fromkeys(name for name, definition in table.items() if not definition.internal)
    names.update(dict.fromkeys(given))
    return filter(wanted, names)


def _broker_synonyms(name: str, found: tuple[Layer, ...]) -> list[ConfigSynonym]:
    family = _FAMILIES.get(name, (name,))
    synonyms = [
        ConfigSynonym(member, _shown(member, layer.settings[member]), layer.source)
        for layer in found
        for member in family
        if member in layer.settings
    ]
    for member in family:
        definition = dynamic_definition(member)
        if member in BROKER_SETTINGS and definition is not None and definition.default is not None:
            synonyms.append(
                ConfigSynonym(member, definition.format(definition.default), Source.DEFAULT)
            )
    # Synonyms before the name itself belong to another setting.
    while synonyms and synonyms[0].name != name:
        del synonyms[0]
    return synonyms


def _shown(name: str, text: str) -> str | None:
    definition = dynamic_definition(name)
    return None if definition is None or definition.sensitive else text


def _effective(definition: Definition, found: tuple[Layer, ...]) -> Any:
    for layer in found:
        text = layer.settings.get(definition.name)
        if text is not None:
            try:
                return definition.parse(text)
            except BadValue:
                continue
    return definition.default


def _fixed(definition: Definition) -> bool:
    return definition.change is Change.RESTART


def _description(
    definition: Definition,
    value: str | None,
    synonyms: list[ConfigSynonym],
    *,
    read_only: bool = False,
) -> Description:
    if definition.sensitive:
        value = None
    return Description(
        name=definition.name,
        value=value,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        read_only=read_only,
        sensitive=definition.sensitive,
        type=definition.type,
        documentation=definition.documentation,
        synonyms=synonyms,
    )


def _unknown(name: str, source: Source, *, read_only: bool) -> Description:
    return Description(
        name=name,
        value=None,
        source=source,
        read_only=read_only,
        sensitive=True,
        type=ConfigType.UNKNOWN,
        documentation=None,
        synonyms=[ConfigSynonym(name, None, source)],
    )
