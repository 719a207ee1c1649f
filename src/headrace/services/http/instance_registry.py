"""Consumer instances of one door: their names, owners and idle times, bounded. Pure.

An instance lives in the memory of the door that made it and dies with it; its group does not. An
instance that nobody asked for `idle_s` is given back by `expired`, to be closed.
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
class _Place(Generic[T]):
    instance: T
    used_s: float
    busy: int = 0  # requests that use it now


class InstanceRegistry(Generic[T]):
    def __init__(self, door: str, *, most: int, idle_s: float) -> None:
        self._door, self._most, self._idle_s = door, most, idle_s
        # By user, group and name: nobody takes a name from another user, or learns of it.
        self._places: dict[tuple[str, str, str], _Place[T]] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(
        self, group: str, name: str | None, user: str, make: Callable[[], T], now_s: float
    ) -> str:
        """Its id; `make` is called only if there is room and the name is free."""
        if name is None:
            self._made += 1
            name = f"{self._door}-{self._made}"
        if (user, group, name) in self._places:
            said = "Consumer with specified consumer ID already exists in the specified group."
            raise Refusal(409, said, code=INSTANCE_EXISTS)
        if len(self._places) >= self._most:
            raise busy(f"The door has {self._most} consumer instances; delete some.", 10)
        self._places[user, group, name] = _Place(make(), now_s)
        return name

    def enter(self, group: str, name: str, user: str, now_s: float) -> T:
        """The instance, for one request of its owner; `leave` follows."""
        place = self._places.get((user, group, name))
        if place is None:
            raise self._unknown()
        place.used_s = now_s
        place.busy += 1
        return place.instance

    def leave(self, group: str, name: str, user: str, now_s: float) -> None:
        place = self._places.get((user, group, name))
        if place is not None:
            place.busy -= 1
            place.used_s = now_s

    def remove(self, group: str, name: str, user: str) -> T:
        place = self._places.pop((user, group, name), None)
        if place is None:
            raise self._unknown()
        return place.instance

    def expired(self, now_s: float) -> list[T]:
        """Those that were idle for too long; they are not known any more."""
        old = [
            key
            for key, place in self._places.items()
            if not place.busy and now_s - place.used_s >= self._idle_s
        ]
        return [self._places.pop(key).instance for key in old]

    def all(self) -> list[T]:
        found = [place.instance for place in self._places.values()]
        self._places.clear()
        return found

    def _unknown(self) -> Refusal:
        return Refusal(
            NOT_FOUND,
            "Consumer instance not found. An instance lives in the door that made it: it ends with "
            f"that door, and after {self._idle_s:g} seconds without a request. Create it anew: the "
            "group goes on from what it has committed.",
            code=INSTANCE_NOT_FOUND,
        )
