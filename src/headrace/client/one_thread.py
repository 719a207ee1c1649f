"""A guard for what belongs to one thread at a time: a second one is told so instead of hanging.

librdkafka's consumer hangs or mixes up records when two threads use it; `consumer_group_metadata`
while another thread polls is the best known case. The same thread may enter again (callbacks do).
"""

from __future__ import annotations

import threading
from types import TracebackType

from headrace.client.errors import Misuse


class OneThread:
    def __init__(self) -> None:
        self._in_use = threading.RLock()
        self.closed = False

    def __enter__(self) -> None:
        if self.closed:
            raise Misuse("This consumer is closed; make a new one.")
        if not self._in_use.acquire(blocking=False):
            raise Misuse(
                "Two threads use one consumer at once: give each thread a consumer of its own, "
                "and call only stop() from outside."
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in_use.release()
