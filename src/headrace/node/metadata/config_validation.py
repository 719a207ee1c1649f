"""Checks whether settings may be stored for a resource; raises KafkaError with Apache's code if
not.

Each function gets all settings that the resource would have after the change, as text. A topic's
and a group's fault is INVALID_CONFIG; a broker's is INVALID_REQUEST, as Apache answers it. An
unsupported value is refused here as it is at start-up: a setting is never accepted and then
ignored, unless its documentation says that it has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.node.metadata.config_definitions import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    REPLICATION_RATES,
    TOPIC_SETTINGS,
)
from headrace.node.metadata.config_definitions.authorizer import OF_THE_AUTHORIZER
from headrace.node.metadata.config_definitions.definition import (
    BadValue,
    Change,
    Definition,
    Standing,
)
from headrace.node.metadata.config_definitions.group import (
    CLIENT_MATCHERS,
    LONGEST_METRICS_INTERVAL_MS,
    SHARE_BACKOFF,
    SHARE_BACKOFF_MAX,
    SHORTEST_METRICS_INTERVAL_MS,
)
from headrace.node.metadata.config_definitions.security import OF_LISTENERS, OF_MECHANISMS
from headrace.wire.protocol.errors import ErrorCode, KafkaError

# Apache lets a running pool grow to twice its size and shrink to half of it, no further at once.
_THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.")
_MECHANISMS = ("plain.", "scram-sha-256.", "scram-sha-512.", "oauthbearer.")
# Apache takes these from a client for one listener by its name, and for all only from the file.
_OF_ONE_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_LIMITS_OF_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate"})


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, sentence)


def _bad_request(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)


def is_refused(definition: Definition, value: Any) -> bool:
    """Returns whether a value asks for something that Headrace does not support."""
    if definition.standing is not Standing.UNSUPPORTED or value in ("", ()):
        return False
    # A setting that names TLS or SASL at all asks for it; elsewhere the default asks for nothing.
    return definition.name.startswith(("ssl.", "sasl.")) or bool(value != definition.default)


def not_supported_by_name(name: str) -> str | None:
    """The unsupported feature of a setting that is in no table: a setting of a single listener."""
    prefix = _LISTENER_PREFIX.match(name)
    if prefix is None or listener_definition(name) is not None:
        return None
    return f"{name[prefix.end() :]} of single listeners"


def listener_definition(name: str) -> Definition | None:
    """Returns the definition of a setting for one listener, or for one mechanism of it."""
    prefix = _LISTENER_PREFIX.match(name)
    rest = name if prefix is None else name[prefix.end() :]
    for mechanism in _MECHANISMS:
        if rest.startswith(mechanism) and rest.removeprefix(mechanism) in OF_MECHANISMS:
            return replace(BROKER_SETTINGS[rest.removeprefix(mechanism)], name=name)
    if prefix is None or rest not in OF_LISTENERS | _LIMITS_OF_LISTENERS:
        return None
    return replace(BROKER_SETTINGS[rest], name=name)


def validate_topic_config(name: str, value: str) -> Any:
    """One setting of a topic by itself; the typed value."""
    definition = TOPIC_SETTINGS.get(name)
    if definition is None:
        raise _invalid(f"There is no topic setting named {name}.")
    return _typed(definition, value)


def validate_topic_configs(settings: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
    """Check all settings of a topic together; `defaults` apply to the settings that the topic does
    not have."""
    values = {name: validate_topic_config(name, text) for name, text in settings.items()}
    shortest = values.get("min.compaction.lag.ms", defaults["min.compaction.lag.ms"])
    longest = values.get("max.compaction.lag.ms", defaults["max.compaction.lag.ms"])
    if shortest > longest:
        raise _invalid(
            f"min.compaction.lag.ms ({shortest}) must not be above max.compaction.lag.ms "
            f"({longest})."
        )


def _typed(definition: Definition, text: str) -> Any:
    try:
        value = definition.parse(text)
    except BadValue as fault:
        raise _invalid(str(fault)) from None
    if is_refused(definition, value):
        raise _invalid(f"{definition.name} cannot be set: {_not_supported(definition)}.")
    return value


def _not_supported(definition: Definition) -> str:
    return f"Headrace does not support {definition.why} yet"


# ---- groups and client metrics -------------------------------------------------------------------

# A group's setting, and the broker's settings that are its lower and upper bound.
_GROUP_BOUNDS: dict[str, tuple[str | None, str | None]] = {
    **{
        f"{kind}.{what}": (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
        for kind in ("consumer", "share", "streams")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    },
    **{
        f"share.{what}": (f"group.share.min.{what}", f"group.share.max.{what}")
        for what in (
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        )
    },
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}


def validate_group_configs(settings: Mapping[str, str], broker: Mapping[str, Any]) -> None:
    """`broker` are the broker's values, which set the bounds."""
    values: dict[str, Any] = {}
    for name, text in settings.items():
        definition = GROUP_SETTINGS.get(name)
        if definition is None:
            raise _invalid(f"There is no group setting named {name}.")
        values[name] = _typed(definition, text)
        _require_bounds(name, values[name], broker)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (
            values.get(f"{kind}.{what}", broker[f"group.{kind}.{what}"])
            for what in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        if heartbeat >= session:
            raise _invalid(
                f"{kind}.heartbeat.interval.ms ({heartbeat}) must be below "
                f"{kind}.session.timeout.ms ({session})."
            )
    first, most = (
        values.get(name, GROUP_SETTINGS[name].default)
        for name in (SHARE_BACKOFF, SHARE_BACKOFF_MAX)
    )
    if first > most:
        raise _invalid(f"{SHARE_BACKOFF} ({first}) must not be above {SHARE_BACKOFF_MAX} ({most}).")


def _require_bounds(name: str, value: int, broker: Mapping[str, Any]) -> None:
    lowest, highest = _GROUP_BOUNDS.get(name, (None, None))
    if lowest is not None and value < broker[lowest]:
        raise _invalid(f"{name} must not be below the broker's {lowest} ({broker[lowest]}).")
    if highest is not None and value > broker[highest]:
        raise _invalid(f"{name} must not be above the broker's {highest} ({broker[highest]}).")


def validate_client_metrics_configs(settings: Mapping[str, str]) -> None:
    for name, text in settings.items():
        definition = CLIENT_METRICS_SETTINGS.get(name)
        if definition is None:
            raise _bad_request(f"There is no client metrics setting named {name}.")
        value = _typed(definition, text)
        if name == "match":
            _require_matchers(value)
        if name == "interval.ms" and not (
            SHORTEST_METRICS_INTERVAL_MS <= value <= LONGEST_METRICS_INTERVAL_MS
        ):
            raise _bad_request(
                f"interval.ms must be between {SHORTEST_METRICS_INTERVAL_MS} and "
                f"{LONGEST_METRICS_INTERVAL_MS}, not {value}."
            )


def _require_matchers(patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        name, equals, expression = pattern.partition("=")
        if not equals or "=" in expression or name.strip() not in CLIENT_MATCHERS:
            raise _invalid(f"'{pattern}' in match is not name=expression with a known name.")
        try:
            re.compile(expression)
        except (re.error, OverflowError, RecursionError):
            raise _invalid(f"'{pattern}' in match has a malformed expression.") from None


# ---- brokers -------------------------------------------------------------------------------------


def validate_broker_configs(
    settings: Mapping[str, str], *, of_one_broker: bool, current: Mapping[str, Any]
) -> None:
    """Settings changed while brokers run; `current` are this broker's values now.

    Unknown names are stored, as Apache does: they may be another release's or a plug-in's.
    """
    known = {name: found for name in settings if (found := dynamic_definition(name)) is not None}
    fixed = sorted(
        name
        for name in settings
        if name in OF_THE_AUTHORIZER or (name in known and known[name].change is Change.RESTART)
    )
    if fixed:
        raise _bad_request(f"Only a restart changes {', '.join(fixed)}.")
    if unnamed := sorted(_OF_ONE_LISTENER & settings.keys()):
        raise _bad_request(
            f"{', '.join(unnamed)} can be changed for one listener: put listener.name.NAME. before."
        )
    for name in settings:
        if (lacking := not_supported_by_name(name)) is not None:
            raise _bad_request(f"{name} cannot be set: Headrace does not support {lacking} yet.")
    values = {name: _broker_value(found, settings[name]) for name, found in known.items()}
    narrow = sorted(name for name, found in known.items() if found.change is Change.PER_BROKER)
    if narrow and not of_one_broker:
        raise _bad_request(f"{', '.join(narrow)} can only be set for one broker, by its id.")
    for name in ("listeners", "listener.security.protocol.map"):
        if name in values and values[name] != current[name]:
            raise _bad_request(f"{name} cannot be changed while the node runs; restart it.")
    _require_gentle_thread_counts(values, current)
    fault = fault_between_settings({**current, **values})
    if fault is not None:
        raise _bad_request(fault)


def dynamic_definition(name: str) -> Definition | None:
    return BROKER_SETTINGS.get(name) or REPLICATION_RATES.get(name) or listener_definition(name)


def _broker_value(definition: Definition, text: str) -> Any:
    try:
        value = definition.parse(text)
    except BadValue as fault:
        raise _bad_request(str(fault)) from None
    if is_refused(definition, value):
        raise _bad_request(f"{definition.name} cannot be set: {_not_supported(definition)}.")
    return value


def _require_gentle_thread_counts(values: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    for name in _THREAD_COUNTS & values.keys():
        wanted, now = values[name], current[name]
        if not now / 2 <= wanted <= now * 2:
            raise _bad_request(
                f"{name} may change to between half and double its value of {now} at a time, "
                f"not to {wanted}."
            )


def fault_between_settings(values: Mapping[str, Any]) -> str | None:
    """The error of a broker's values taken together, in one sentence."""
    for name, lowest in _LEAST:
        if values[name] is not None and values[name] < lowest:
            return f"{name} must be at least {lowest}, not {values[name]}."
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values[name] == 0:
            return f"{name} must be -1, which is for ever, or at least 1."
    for lower, upper in _ORDERED:
        if values[lower] > values[upper]:
            return f"{lower} ({values[lower]}) must not be above {upper} ({values[upper]})."
    queued, largest = values["queued.max.request.bytes"], values["socket.request.max.bytes"]
    if 0 < queued < largest:
        return (
            f"queued.max.request.bytes ({queued}) must have room for one request of "
            f"socket.request.max.bytes ({largest})."
        )
    room, threads = values["log.cleaner.dedupe.buffer.size"], values["log.cleaner.threads"]
    if room < threads << 20:
        return f"log.cleaner.dedupe.buffer.size must be at least {threads << 20}, 1 MB per thread."
    try:
        connections_by_address(values["max.connections.per.ip.overrides"])
    except BadValue as fault:
        return str(fault)
    return None


_LEAST = (
    ("log.roll.ms", 1),
    ("log.roll.jitter.ms", 0),
    ("default.replication.factor", 1),
)

_ORDERED = (
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    *(
        (f"group.{kind}.{a}{what}", f"group.{kind}.{b}{what}")
        for kind in ("consumer", "share", "streams")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        for a, b in (("min.", ""), ("", "max."))
    ),
)


def connections_by_address(text: str) -> dict[str, int]:
    """The parsed form of max.connections.per.ip.overrides."""
    bounds: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = entry.rpartition(":")
        if not address or re.fullmatch(r"\s*[0-9]{1,10}\s*", count) is None:
            raise BadValue(
                f"max.connections.per.ip.overrides must be a list of ADDRESS:COUNT, not '{entry}'."
            )
        bounds[address.strip()] = int(count)
    return bounds
