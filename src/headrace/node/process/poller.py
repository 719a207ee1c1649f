"""Which sockets are ready: epoll on Linux, `selectors` elsewhere (kqueue on macOS).

Two small classes with the same methods. Events come as the system gives them, (descriptor, mask):
`mask & WRITE` says writable, anything else in the mask says readable or broken, which reading
finds out. Translating each event would cost more than the call itself.
"""

from __future__ import annotations

import select
import selectors
from typing import Protocol


class Poller(Protocol):
    READ: int
    WRITE: int

    def watch(self, descriptor: int, interest: int) -> None: ...

    def change(self, descriptor: int, interest: int) -> None: ...

    def forget(self, descriptor: int) -> None: ...

    def poll(self, timeout_seconds: float) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


class EpollPoller:
    """Level-triggered. A peer that breaks off is seen also while nothing is watched for."""

    READ = getattr(select, "EPOLLIN", 1)
    WRITE = getattr(select, "EPOLLOUT", 4)

    def __init__(self) -> None:
        epoll = select.epoll()
        self.watch = epoll.register
        self.change = epoll.modify
        self.forget = epoll.unregister
        self.poll = epoll.poll
        self.close = epoll.close


class SelectorsPoller:
    """For systems without epoll; a descriptor with no events to watch is removed from the
    selector."""

    READ = selectors.EVENT_READ
    WRITE = selectors.EVENT_WRITE

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, descriptor: int, interest: int) -> None:
        self.change(descriptor, interest)

    def change(self, descriptor: int, interest: int) -> None:
        known = descriptor in self._selector.get_map()
        if not interest:
            if known:
                self._selector.unregister(descriptor)
        elif known:
            self._selector.modify(descriptor, interest)
        else:
            self._selector.register(descriptor, interest)

    def forget(self, descriptor: int) -> None:
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def poll(self, timeout_seconds: float) -> list[tuple[int, int]]:
        return [(key.fd, mask) for key, mask in self._selector.select(timeout_seconds)]

    def close(self) -> None:
        self._selector.close()


def best_poller() -> Poller:
    return EpollPoller() if hasattr(select, "epoll") else SelectorsPoller()
