"""Topics of delayed messages: their names, and the entry that registers a pair of topics.

The target follows from the companion's name and never from a header, so that write access to
`orders.delay` is delayed write access to `orders` and to nothing else. Only registered companions
are served: the compacted topic REGISTRY holds one record per target, deleted by a tombstone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from headrace.wire.contract.own_records import json_object, key_text, moment_ms

COMPANION_SUFFIX = ".delay"
REJECTED_SUFFIX = ".delay.rejected"
OUTCOMES_SUFFIX = ".delay.outcomes"
REGISTRY = "headrace.delay.topics"
FAR = "headrace.delay.far"
GROUP = "headrace-delay"
# For topics that only the service writes to: the broker stamps their records, so that it does not
# refuse them when the service's clock is ahead of its own.
STAMPED_BY_THE_BROKER = {"message.timestamp.type": "LogAppendTime"}

# 249 characters are Kafka's limit, and the longest of the names above must fit as well.
LONGEST_TARGET_NAME = 249 - len(OUTCOMES_SUFFIX)

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_SUFFIXES = (COMPANION_SUFFIX, REJECTED_SUFFIX, OUTCOMES_SUFFIX)


def companion_of(target: str) -> str:
    return target + COMPANION_SUFFIX


def rejected_of(target: str) -> str:
    return target + REJECTED_SUFFIX


def outcomes_of(target: str) -> str:
    return target + OUTCOMES_SUFFIX


def companions_of(target: str) -> tuple[str, ...]:
    """All topics that delayed messages of a target may have beside it."""
    return tuple(target + suffix for suffix in _SUFFIXES)


def target_of(companion: str) -> str:
    """Raises ValueError if that is not a companion's name."""
    target = companion.removesuffix(COMPANION_SUFFIX)
    if target == companion or not target:
        raise ValueError(f"'{companion}' is not a companion: its name does not end in '.delay'")
    return target


def require_target_name(name: str) -> None:
    """Raises ValueError with the reason why a topic of this name cannot have delayed messages."""
    if _LEGAL.fullmatch(name) is None or name in (".", ".."):
        raise ValueError(f"'{name}' is not a valid topic name")
    if len(name) > LONGEST_TARGET_NAME:
        raise ValueError(
            f"'{name}' has {len(name)} characters; with delayed messages a topic's name may have "
            f"{LONGEST_TARGET_NAME}, because those of its companions are longer"
        )
    if name.endswith(_SUFFIXES):
        raise ValueError(f"'{name}' belongs to the delayed messages of another topic")
    if name.startswith("__") or name in (REGISTRY, FAR):
        raise ValueError(f"'{name}' is an internal topic")


@dataclass(slots=True)
class Registration:
    """One record of the registry: the target's name is the record's key."""

    target: str
    companion: str
    enabled_at_ms: int

    @property
    def key(self) -> bytes:
        return self.target.encode()

    @property
    def value(self) -> bytes:
        entry = {"companion": self.companion, "enabled_at_ms": self.enabled_at_ms}
        return json.dumps(entry).encode()


def register(target: str, enabled_at_ms: int) -> Registration:
    require_target_name(target)
    return Registration(target, companion_of(target), enabled_at_ms)


def read_registration(key: bytes | None, value: bytes | None) -> Registration:
    """Unknown fields are for later versions and ignored. Raises ValueError for anything else."""
    target = key_text(key)
    require_target_name(target)
    entry = json_object(value)
    if entry.get("companion") != companion_of(target):
        raise ValueError(f"the companion of '{target}' is '{companion_of(target)}' and no other")
    return Registration(target, companion_of(target), moment_ms(entry.get("enabled_at_ms")))
