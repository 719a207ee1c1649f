"""Consumer instances of one server: their names, owners and idle times, bounded. Pure.

An instance exists only in the memory of the server that made it; its group outlives it. `expired`
returns instances without a request for `idle_s`, to be closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.services.http.refusal import (
    INSTANCE_EXISTS,
    INSTANCE_NOT_FOUND,
    NOT_FOUND,
    Refusal,
    busy,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Usage(Generic[T]):
    instance: T
    used_s: float
    busy: int = 0  # requests that use it now


class InstanceRegistry(Generic[T]):
    def __init__(self, door: str, *, most: int, idle_s: float) -> None:
        self._door, self._most, self._idle_s = door, most, idle_s
        # By user, group and name: a user cannot take a name from another user, or learn of it.
        self._usages: dict[tuple[str, str, str], _Usage[T]] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._usages)

    def add(
        self, group: str, name: str | None, user: str, make: Callable[[], T], now_s: float
    ) -> str:
        """Returns its id; `make` is called only if there is room and the name is free."""
        if name is None:
            self._made += 1
            name = f"{self._door}-{self._made}"
        if (user, group, name) in self._usages:
            said = "Consumer with specified consumer ID already exists in the specified group."
            raise Refusal(409, said, code=INSTANCE_EXISTS)
        if len(self._usages) >= self._most:
            raise busy(f"The server has {self._most} consumer instances; delete some.", 10)
        self._usages[user, group, name] = _Usage(make(), now_s)
        return name

    def enter(self, group: str, name: str, user: str, now_s: float) -> T:
        """Returns the instance, for one request of its owner; `leave` must follow."""
        usage = self._usages.get((user, group, name))
        if usage is None:
            raise self._unknown()
        usage.used_s = now_s
        usage.busy += 1
        return usage.instance

    def leave(self, group: str, name: str, user: str, now_s: float) -> None:
        usage = self._usages.get((user, group, name))
        if usage is not None:
            usage.busy -= 1
            usage.used_s = now_s

    def remove(self, group: str, name: str, user: str) -> T:
        usage = self._usages.pop((user, group, name), None)
        if usage is None:
            raise self._unknown()
        return usage.instance

    def expired(self, now_s: float) -> list[T]:
        """Removes and returns the instances that were idle for too long."""
        old = [
            key
            for key, usage in self._usages.items()
            if not usage.busy and now_s - usage.used_s >= self._idle_s
        ]
        return [self._usages.pop(key).instance for key in old]

    def all(self) -> list[T]:
        found = [usage.instance for usage in self._usages.values()]
        self._usages.clear()
        return found

    def _unknown(self) -> Refusal:
        return Refusal(
            NOT_FOUND,
            "Consumer instance not found. It belongs to the server that made it: it ends with "
            f"that server, and after {self._idle_s:g} s without a request. Create it again: the "
            "group continues from its committed offsets.",
            code=INSTANCE_NOT_FOUND,
        )
