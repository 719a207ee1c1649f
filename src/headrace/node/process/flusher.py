"""The one other thread: fdatasync and whatever else may block on the disk.

fdatasync takes 2 to 40 ms with 1 to 100 MB dirty, so it never runs on the loop. Work is done in
order; finished work comes back to the loop through `finished`, after a byte on the wake-up socket.
Everything handed over waits in one queue; the owners bound it (one flush per log at a time). An
OSError goes to the caller that handed the work over. Any other exception is a bug: nothing may
depend on work that was not done, so it is kept in `failure`, no more work is done, and the server
ends the node.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from time import monotonic

log = logging.getLogger(__name__)

Work = Callable[[], None]
Done = Callable[[OSError | None], None]


# Flushes of many files wait for the same few writes of the file system's journal.
FLUSHES_AT_ONCE = 16


# A clean shutdown that takes longer logs its progress this often.
SAY_EVERY_S = 1.0


class ClosingFlushes:
    """The flushes of a clean end: side by side, with a word about how far they are."""

    __slots__ = ("done", "_all", "_say", "_every_s", "_clock", "_next_s")

    def __init__(
        self,
        all_of_them: Callable[[], int],
        say: Callable[[int, int], None],
        every_s: float = SAY_EVERY_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`say(done, all)` is called once in `every_s`, from the first flush on."""
        self.done = 0
        self._clock = clock
        self._next_s: float | None = None
        self._all = all_of_them
        self._say = say
        self._every_s = every_s

    def __call__(self, works: Sequence[Work]) -> None:
        """Raises what one of them raised."""
        if not works:
            return
        if self._next_s is None:
            self._next_s = self._clock() + self._every_s
        with ThreadPoolExecutor(min(FLUSHES_AT_ONCE, len(works))) as threads:
            running = {threads.submit(work) for work in works}
            while running:
                left_s = max(self._next_s - self._clock(), 0.0)
                ended, running = wait(running, left_s, FIRST_EXCEPTION)
                for one in ended:
                    one.result()
                self.done += len(ended)
                if self._clock() >= self._next_s:
                    self._next_s = self._clock() + self._every_s
                    self._say(self.done, self._all())


def say_how_far(done: int, all_of_them: int) -> None:
    log.info(
        "stopping: the logs of %d of %d partitions are flushed; wait, or the next start reads the "
        "others again",
        done,
        all_of_them,
    )


class Flusher:
    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[Done, OSError | None]] = deque()
        self.failure: Exception | None = None  # a bug; set once, by the thread
        self.wake_up, self._bell = socket.socketpair()
        self.wake_up.setblocking(False)
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="headrace-flusher", daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done) -> None:
        """`work` runs on the flusher's thread, then `done` on the loop, with the error if any."""
        self._work.put((work, done))

    def finish(self) -> None:
        """On the loop, when `wake_up` is readable."""
        with suppress(BlockingIOError):
            self.wake_up.recv(4096)
        while self._finished:
            done, error = self._finished.popleft()
            done(error)

    def stop(self) -> None:
        """Everything submitted is done first."""
        self._work.put(None)
        self._thread.join()
        self.finish()
        self.wake_up.close()
        self._bell.close()

    def ring(self) -> None:
        """Wake the loop; a full socket means that it is about to wake anyway."""
        with suppress(BlockingIOError):
            self._bell.send(b"!")

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            if self.failure is None:
                self._do(*item)
            self.ring()

    def _do(self, work: Work, done: Done) -> None:
        error: OSError | None = None
        try:
            work()
        except OSError as refusal:
            error = refusal
        except Exception as bug:  # noqa: BLE001 - if this thread died silently, the node would hang
            self.failure = bug
            return
        self._finished.append((done, error))
