"""The share consumers of one server, by user, group and topics: made when first asked for.

They live in the memory of the server that made them, bounded in number; one without a request for a
while is closed, which gives back what it holds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headrace.services.http.consumers.instance_registry import InstanceRegistry
from headrace.services.http.queues.queue_consumer import QueueConsumer
from headrace.services.http.refusal import Refusal


class OpenQueues:
    def __init__(self, door: str, *, most: int, idle_s: float) -> None:
        self._registry: InstanceRegistry[QueueConsumer] = InstanceRegistry(
            door, most=most, idle_s=idle_s
        )
        self._names: dict[tuple[str, str, tuple[str, ...]], str] = {}

    def __len__(self) -> int:
        return len(self._registry)

    @contextmanager
    def of_topics(
        self, user: str, group: str, topics: Sequence[str], make: Callable[[str], QueueConsumer]
    ) -> Iterator[QueueConsumer]:
        """Returns the consumer of these topics; `make` gets the name of a new one."""
        key = (user, group, tuple(sorted(topics)))
        name = self._names.get(key)
        if name is None or (found := self._known(user, group, name)) is None or found.failure:
            if name is not None and self._known(user, group, name) is not None:
                self._registry.remove(group, name, user)
            name = secrets.token_urlsafe(12)
            fresh = name
            self._registry.add(group, name, user, lambda: make(fresh), time.monotonic())
            self._names[key] = name
        with self._entered(user, group, name) as consumer:
            yield consumer

    @contextmanager
    def named(self, user: str, group: str, name: str) -> Iterator[QueueConsumer | None]:
        """Returns the consumer whose ids begin so; None if it is not here any more."""
        if self._known(user, group, name) is None:
            yield None
            return
        with self._entered(user, group, name) as consumer:
            yield consumer

    def _known(self, user: str, group: str, name: str) -> QueueConsumer | None:
        now_s = time.monotonic()
        try:
            found = self._registry.enter(group, name, user, now_s)
        except Refusal:
            return None
        self._registry.leave(group, name, user, now_s)
        return found

    @contextmanager
    def _entered(self, user: str, group: str, name: str) -> Iterator[QueueConsumer]:
        consumer = self._registry.enter(group, name, user, time.monotonic())
        try:
            yield consumer
        finally:
            self._registry.leave(group, name, user, time.monotonic())

    def expired(self) -> list[QueueConsumer]:
        """Removes and returns the consumers to close."""
        old = self._registry.expired(time.monotonic())
        names = {each.name for each in old}
        self._names = {key: name for key, name in self._names.items() if name not in names}
        return old

    def all(self) -> list[QueueConsumer]:
        self._names.clear()
        return self._registry.all()
