"""Questions to the cluster that wait for an answer: on a few threads, with a bounded queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.services.http.refusal import busy

T = TypeVar("T")


class Questions:
    def __init__(self, *, at_once: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="headrace-http")
        self._most = at_once + waiting
        self.open = 0

    async def ask(self, question: Callable[[], T]) -> T:
        """Returns the answer; if the caller goes away, the question ends by itself."""
        if self.open >= self._most:
            raise busy("Too many requests wait for the cluster; try again.")
        self.open += 1
        asked = self._threads.submit(question)
        loop = asyncio.get_running_loop()
        asked.add_done_callback(lambda _: self._answered(loop))
        return await asyncio.wrap_future(asked)

    def _answered(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._one_less)

    def _one_less(self) -> None:
        self.open -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
