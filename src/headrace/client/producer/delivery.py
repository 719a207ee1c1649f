"""Futures of sent records, and the thread that completes them.

librdkafka reports the result of each record to the polling thread, one Python call per record, each
taking the interpreter's lock again. While the program sends without pause, a second thread would
get that lock once per 5 ms, one record at a time; so `send` polls itself, and the thread here
pauses for as long as sends come quickly. When they stop, it waits in librdkafka and reports at
once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, Message

from headrace.client.errors import ClientError, Misuse
from headrace.client.records import Sent

log = logging.getLogger("headrace.client")

# The type of `callback=`: it gets the place of the record, or the error.
Callback = Callable[[Sent | None, ClientError | None], None]

# How often the thread checks whether the senders poll, and how many sends since the last check mean
# that they do.
TICK_S = 0.005
BUSY_SENDS = 50
# A sender polls after each so many records (one less than a power of two, as a mask).
POLL_MASK = 7
LONGEST_POLL_S = 0.1


class Waiting:
    """The state that all deliveries of one producer share: a lock, a condition, waiters,
    callbacks."""

    def __init__(self, explain: Callable[[KafkaError, str], ClientError]) -> None:
        self.explain = explain
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.threads = 0
        self._telling: set[int] = set()  # threads that run a callback right now
        self._refusal: str | None = None  # why there will be no more results

    def tell(self, invoke_callbacks: Callable[[], None]) -> None:
        me = threading.get_ident()
        outermost = me not in self._telling  # a callback may send, and so run other callbacks
        self._telling.add(me)
        try:
            invoke_callbacks()
        finally:
            if outermost:
                self._telling.discard(me)

    def require_an_end(self) -> None:
        """Raise if a wait for a result would never end."""
        if self._refusal is not None:
            raise Misuse(self._refusal)
        if threading.get_ident() in self._telling:
            raise Misuse(
                "A callback of a record cannot wait for other records: it holds up the thread that "
                "hears of them. Send without waiting in it, or wait on another thread."
            )

    def abandon(self, why: str) -> None:
        """For a child process: the lock may be held by a thread that is not here."""
        self._refusal = why
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)


class Delivery(Future[Sent]):
    """The future of one record: `result()` is a `Sent`, or raises why it was not written.

    A usual concurrent future, for `concurrent.futures.wait` and `asyncio.wrap_future` alike, except
    that all of a producer share one condition: to create and set a condition for each costs as much
    as to produce the record (4.6 us, measured). It cannot be cancelled: the record is under way.
    """

    # The fields of Future.__init__, without setting them: most deliveries are never waited for.
    # tests/unit/client/test_delivery.py compares with the Future of the running Python.
    _state = "RUNNING"
    _result = None
    _exception: BaseException | None = None

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._waiting.condition

    def __getattr__(self, name: str) -> Any:
        if name in ("_waiters", "_done_callbacks"):
            return self.__dict__.setdefault(name, [])
        raise AttributeError(name)

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Takes librdkafka's report; does what `set_result` and `set_exception` do, with less
        work."""
        waiting = self._waiting
        with waiting.lock:
            if error is None:
                self._result = sent(message)
            else:
                self._exception = waiting.explain(error, message.topic() or "")
            self._state = "FINISHED"
            for waiter in self.__dict__.get("_waiters", ()):
                (waiter.add_result if error is None else waiter.add_exception)(self)
            if waiting.threads:
                waiting.condition.notify_all()
        if "_done_callbacks" in self.__dict__:
            waiting.tell(self._invoke_callbacks)

    def result(self, timeout: float | None = None) -> Sent:
        """Wait for the end: where the record was written, or raise why it was not."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end: the error, or None if the record was written."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Wait until this one is done; the condition also wakes us for others."""
        waiting = self._waiting
        if not self.done():
            waiting.require_an_end()
        with waiting.lock:
            waiting.threads += 1
            try:
                if not waiting.condition.wait_for(self.done, timeout):
                    raise TimeoutError("The record is not acknowledged yet.")
            finally:
                waiting.threads -= 1


def sent(message: Message) -> Sent:
    offset = message.offset()
    return Sent(
        message.topic() or "",
        message.partition() or 0,
        -1 if offset is None else offset,
        message.timestamp()[1],
    )


def call_back(callback: Callback, done: Future[Sent]) -> None:
    error = done.exception()
    try:
        if error is None:
            callback(done.result(), None)
        else:
            assert isinstance(error, ClientError)
            callback(None, error)
    except Exception:  # no one waits for it, and it must not end the polling thread
        log.exception("a delivery callback failed")


class DeliveryPoller:
    """Polls on a thread of its own while the senders do not; the thread starts with the first
    record."""

    def __init__(self, poll: Callable[[float], int]) -> None:
        self._poll = poll
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.sends = 0  # counted by the senders, not exactly

    def begin(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-deliveries", daemon=True
                )
                self._thread.start()

    def end(self) -> None:
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            before = self.sends
            self._ended.wait(TICK_S) if self._busy else self._poll(LONGEST_POLL_S)
            self._busy = self.sends - before > BUSY_SENDS

    _busy = False


class NoPoller:
    """Stands in for the polling thread where other code polls, such as an event loop."""

    def __init__(self) -> None:
        self.sends = 0

    def begin(self) -> None: ...

    def end(self) -> None: ...


class ClosedProducer:
    """Stands in for librdkafka's producer after `close`: it has no records and no connections."""

    def __len__(self) -> int:
        return 0

    def poll(self, timeout_s: float) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        return 0
