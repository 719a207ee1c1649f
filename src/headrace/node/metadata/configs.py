"""Which value of a setting holds, and where it comes from.

A topic's own setting counts first, then what was set for this broker while it runs, then for all
brokers, then this node's file and options, then the default. The first three are in the metadata
image (`image.configs`), the fourth is `static`: the text of what this node was started with.

A stored value that this version cannot read (written by another release) is passed over as if it
were not there: a log must open. The valid values are decided in `config_validation.py`; how clients
see settings is in `config_descriptions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.node.metadata.config_definitions import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
)
from headrace.node.metadata.config_definitions.definition import BadValue, Definition
from headrace.node.metadata.config_validation import validate_topic_config

__all__ = [
    "Configs",
    "ResourceType",
    "Source",
    "TopicSetting",
    "broker_values",
    "describe_topic",
    "group_values",
    "layers",
    "log_settings",
    "node_id_of",
    "topic_defaults",
    "topic_values",
    "validate_topic_config",
]

# (type, name) of a resource to its settings; the shape of MetadataImage.configs.
Configs = Mapping[tuple[int, str], Mapping[str, str]]

_NOTHING: Mapping[str, str] = {}
_ABSENT = object()
# Few of some hundred settings are given: the values of a broker begin with these.
_BROKER_DEFAULTS = {name: definition.default for name, definition in BROKER_SETTINGS.items()}


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ALL_BROKERS = ""  # the name under which settings of every broker are kept


class Source(IntEnum):
    """The source of a value; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Layer(NamedTuple):
    source: Source
    settings: Mapping[str, str]


def node_id_of(static: Mapping[str, str]) -> int:
    found: int = BROKER_SETTINGS["node.id"].default
    text = static.get("node.id")
    return found if text is None else int(text)


def layers(static: Mapping[str, str], configs: Configs) -> tuple[Layer, ...]:
    """Returns the places where a broker's settings may be given, best first; defaults are not among
    them."""
    own = str(node_id_of(static))
    return (
        Layer(Source.BROKER, configs.get((ResourceType.BROKER, own), _NOTHING)),
        Layer(Source.ALL_BROKERS, configs.get((ResourceType.BROKER, ALL_BROKERS), _NOTHING)),
        Layer(Source.FILE, static),
    )


def broker_values(static: Mapping[str, str], configs: Configs) -> dict[str, Any]:
    """Every setting of this broker by Kafka's names, typed."""
    values = dict(_BROKER_DEFAULTS)
    for layer in reversed(layers(static, configs)):  # the best one last: it replaces the others
        for name, text in layer.settings.items():
            definition = BROKER_SETTINGS.get(name)
            value = _ABSENT if definition is None else _readable(definition, text)
            if value is not _ABSENT:
                values[name] = value
    return values


def topic_defaults(static: Mapping[str, str], configs: Configs) -> dict[str, Any]:
    """The settings of a topic that has none of its own. The same for all topics of an image."""
    found = layers(static, configs)
    return {name: _inherited(definition, found) for name, definition in TOPIC_SETTINGS.items()}


def topic_values(
    static: Mapping[str, str],
    configs: Configs,
    topic: str,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Every setting of a topic, typed. A caller that asks for many passes `topic_defaults`
    along."""
    values = dict(topic_defaults(static, configs) if defaults is None else defaults)
    for name, text in configs.get((ResourceType.TOPIC, topic), _NOTHING).items():
        definition = TOPIC_SETTINGS.get(name)
        value = _ABSENT if definition is None else _readable(definition, text)
        if value is not _ABSENT:
            values[name] = value
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return values


# The settings that a log needs, by the names of its own settings object.
_LOG_FIELDS: dict[str, str] = {
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
    "segment_jitter_ms": "segment.jitter.ms",
    "segment_index_bytes": "segment.index.bytes",
    "index_interval_bytes": "index.interval.bytes",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "local_retention_ms": "local.retention.ms",
    "local_retention_bytes": "local.retention.bytes",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "max_message_bytes": "max.message.bytes",
    "timestamp_type": "message.timestamp.type",
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "compression_type": "compression.type",
    "compression_gzip_level": "compression.gzip.level",
    "compression_lz4_level": "compression.lz4.level",
    "compression_zstd_level": "compression.zstd.level",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "preallocate": "preallocate",
    "min_cleanable_dirty_ratio": "min.cleanable.dirty.ratio",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "max_compaction_lag_ms": "max.compaction.lag.ms",
    "delete_retention_ms": "delete.retention.ms",
    "validates_records": "headrace.validate.records",
    "skip_damaged": "headrace.skip.damaged",
}


def log_settings(topic: Mapping[str, Any], broker: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of storage's LogSettings, which this layer may not import."""
    return {
        **{field: topic[name] for field, name in _LOG_FIELDS.items()},
        "cleanup_policy": frozenset(topic["cleanup.policy"]),
        "producer_id_expiration_ms": broker["producer.id.expiration.ms"],
    }


def group_values(static: Mapping[str, str], configs: Configs, group: str) -> dict[str, Any]:
    """Every setting of a group, typed."""
    own = Layer(Source.GROUP, configs.get((ResourceType.GROUP, group), _NOTHING))
    found = layers(static, configs)
    values: dict[str, Any] = {}
    for name, definition in GROUP_SETTINGS.items():
        value = _readable(definition, own.settings[name]) if name in own.settings else _ABSENT
        values[name] = _inherited(definition, found) if value is _ABSENT else value
    return values


class TopicSetting(NamedTuple):
    """One line of the answer to CreateTopics."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False


def describe_topic(
    static: Mapping[str, str], configs: Configs, own: Mapping[str, str]
) -> Iterator[TopicSetting]:
    """The settings of a new topic with these settings of its own, by name."""
    found = layers(static, configs)
    for name in sorted(TOPIC_SETTINGS):
        definition = TOPIC_SETTINGS[name]
        if name in own:
            yield TopicSetting(name, own[name], Source.TOPIC)
        elif not definition.internal:
            value = definition.format(_inherited(definition, found))
            yield TopicSetting(name, value, _source_of_inherited(definition, found))


def _inherited(definition: Definition, found: tuple[Layer, ...]) -> Any:
    """A topic's or a group's value that comes from the broker's settings or the default."""
    for layer in found:
        for synonym in definition.synonyms:
            text = layer.settings.get(synonym.name)
            if text is None:
                continue
            value = _readable(BROKER_SETTINGS[synonym.name], text)
            if value is _ABSENT:
                continue
            if synonym.factor != 1:
                value *= synonym.factor
            # Any negative time means "for ever" in a broker's file.
            return -1 if definition.name == "retention.ms" and value < 0 else value
    return _default_of(definition)


def _default_of(definition: Definition) -> Any:
    """Headrace's default of the broker's setting, where it differs from Kafka's, holds here too."""
    for synonym in definition.synonyms:
        value = BROKER_SETTINGS[synonym.name].default
        if value is not None:
            return value if synonym.factor == 1 else value * synonym.factor
    return definition.default


def _source_of_inherited(definition: Definition, found: tuple[Layer, ...]) -> Source:
    for layer in found:
        for synonym in definition.synonyms:
            if synonym.name in layer.settings:
                return layer.source
    return Source.DEFAULT


def _readable(definition: Definition, text: str) -> Any:
    try:
        return definition.parse(text)
    except BadValue:
        return _ABSENT
