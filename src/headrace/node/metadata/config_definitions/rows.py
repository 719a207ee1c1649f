"""The functions with which the tables beside this file are written: one call per setting.

`integer("num.partitions", 1, at_least(1), "What it is for.")`; the type is the function's name.
`without_effect(why, ...)` and `unsupported(what, ...)` mark the rows that they are given as
settings without effect or as not supported.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.node.metadata.config_definitions.definition import (
    Change,
    Check,
    ConfigType,
    Definition,
    Standing,
)

CLUSTER_WIDE = Change.CLUSTER_WIDE
PER_BROKER = Change.PER_BROKER
RESTART = Change.RESTART


def boolean(name: str, default: bool | None, about: str, change: Change = RESTART) -> Definition:
    return Definition(name, ConfigType.BOOLEAN, default, None, about, change)


def string(
    name: str, default: str | None, check: Check | None, about: str, change: Change = RESTART
) -> Definition:
    return Definition(name, ConfigType.STRING, default, check, about, change)


def integer(
    name: str, default: int | None, check: Check | None, about: str, change: Change = RESTART
) -> Definition:
    return Definition(name, ConfigType.INT, default, check, about, change)


def short(
    name: str, default: int | None, check: Check | None, about: str, change: Change = RESTART
) -> Definition:
    return Definition(name, ConfigType.SHORT, default, check, about, change)


def long(
    name: str, default: int | None, check: Check | None, about: str, change: Change = RESTART
) -> Definition:
    return Definition(name, ConfigType.LONG, default, check, about, change)


def double(
    name: str, default: float, check: Check | None, about: str, change: Change = RESTART
) -> Definition:
    return Definition(name, ConfigType.DOUBLE, default, check, about, change)


def listing(
    name: str,
    default: tuple[str, ...] | None,
    check: Check | None,
    about: str,
    change: Change = RESTART,
) -> Definition:
    return Definition(name, ConfigType.LIST, default, check, about, change)


def java_class(name: str, default: str | None, about: str, change: Change = RESTART) -> Definition:
    return Definition(name, ConfigType.CLASS, default, None, about, change)


def password(name: str, about: str, change: Change = RESTART) -> Definition:
    return Definition(name, ConfigType.PASSWORD, None, None, about, change)


def without_effect(why: str, *rows: Definition) -> tuple[Definition, ...]:
    """`why` ends the sentence "No effect in Headrace: ..."."""
    for row in rows:
        row.standing, row.why = Standing.NO_EFFECT, why
    return rows


def unsupported(what: str, *rows: Definition) -> tuple[Definition, ...]:
    """`what` ends the sentence "Headrace does not support ... yet"."""
    for row in rows:
        row.standing, row.why = Standing.UNSUPPORTED, what
    return rows


def internal(*rows: Definition) -> tuple[Definition, ...]:
    """Kafka's own tests use these; they are not shown unless set."""
    for row in rows:
        row.internal = True
    return rows


def at_least(lowest: int) -> Check:
    return lambda value: None if value >= lowest else f"must be at least {lowest}"


def between(lowest: float, highest: float) -> Check:
    fault = f"must be between {lowest} and {highest}"
    return lambda value: None if lowest <= value <= highest else fault


def between_or(lowest: int, highest: int, other: int) -> Check:
    fault = f"must be between {lowest} and {highest}, or {other}"
    return lambda value: None if lowest <= value <= highest or value == other else fault


def one_of(*values: str) -> Check:
    fault = f"must be one of {', '.join(values)}"
    return lambda value: None if value in values else fault


def one_of_in_any_case(*values: str) -> Check:
    check = one_of(*values)
    return lambda value: check(value.upper())


def some_of(*values: str) -> Check:
    """For lists; an empty one is allowed."""
    fault = f"must be a list of {', '.join(values)}"
    return lambda found: None if set(found) <= set(values) else fault


_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def throttled_replicas(value: Any) -> str | None:
    if value == ("*",) or all(_REPLICA.fullmatch(item) for item in value):
        return None
    return "must be * or a list of partition:broker pairs"
