"""What a running node does when a setting changes: one line per setting that can change live.

`changed_names` compares what held before with what holds now; `EFFECT_OF_TOPIC_SETTING` and
`EFFECT_OF_BROKER_SETTING` say what each difference asks for. Settings that only count at the next
start are in neither table, settings without effect have `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from headrace.metadata.config_definitions import (
    BROKER_SETTINGS,
    REPLICATION_RATES,
    TOPIC_SETTINGS,
)
from headrace.metadata.config_definitions.definition import Change, Definition, Standing
from headrace.metadata.config_definitions.security import OF_LISTENERS


class Effect(Enum):
    LOG_SETTINGS = "give the topic's logs new settings"
    ACKNOWLEDGEMENT = "partition leaders compare the in-sync replicas with the new number"
    ALL_TOPICS = "as for a topic, for every topic that does not set it itself"
    CONNECTION_LIMITS = "give the listeners new limits"
    SECURITY = "give the listeners new certificates and logins"
    NEXT_USE = "it is read anew whenever it is needed"
    NOTHING = "it is shown, and does nothing"


EFFECT_OF_TOPIC_SETTING: dict[str, Effect] = {
    **{
        name: Effect.LOG_SETTINGS if definition.standing is Standing.HONOURED else Effect.NOTHING
        for name, definition in TOPIC_SETTINGS.items()
    },
    "min.insync.replicas": Effect.ACKNOWLEDGEMENT,
}

_INHERITED = {
    synonym.name for definition in TOPIC_SETTINGS.values() for synonym in definition.synonyms
}

_OF_BROKERS: dict[str, Effect] = {
    **dict.fromkeys(OF_LISTENERS, Effect.SECURITY),
    "max.connections": Effect.CONNECTION_LIMITS,
    "max.connections.per.ip": Effect.CONNECTION_LIMITS,
    "max.connections.per.ip.overrides": Effect.CONNECTION_LIMITS,
    "max.connection.creation.rate": Effect.CONNECTION_LIMITS,
    # A log's idea of a producer that is gone is part of its settings.
    "producer.id.expiration.ms": Effect.ALL_TOPICS,
    "transaction.partition.verification.enable": Effect.NEXT_USE,
    "log.cleaner.backoff.ms": Effect.NEXT_USE,
    "log.cleaner.dedupe.buffer.size": Effect.NEXT_USE,
    "log.cleaner.io.max.bytes.per.second": Effect.NEXT_USE,
}


def _effect_of_broker_setting(definition: Definition) -> Effect:
    if definition.standing is not Standing.HONOURED:
        return Effect.NOTHING
    inherited = Effect.ALL_TOPICS if definition.name in _INHERITED else Effect.NOTHING
    return _OF_BROKERS.get(definition.name, inherited)


EFFECT_OF_BROKER_SETTING: dict[str, Effect] = {
    **{
        name: _effect_of_broker_setting(definition)
        for name, definition in BROKER_SETTINGS.items()
        if definition.change is not Change.RESTART
    },
    **dict.fromkeys(REPLICATION_RATES, Effect.NOTHING),
}


def changed_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Names whose typed values differ (`configs.broker_values` or `topic_values` of two images)."""
    return {name for name, value in after.items() if before.get(name) != value}


def broker_effects(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[Effect]:
    """What to do after the broker's values changed; nothing is left out of it but NOTHING."""
    changed = changed_names(before, after) & EFFECT_OF_BROKER_SETTING.keys()
    return {EFFECT_OF_BROKER_SETTING[name] for name in changed} - {Effect.NOTHING}
