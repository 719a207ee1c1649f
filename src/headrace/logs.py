"""Sends a program's own log to a topic: `logging.getLogger().addHandler(headrace.logs.Handler())`.

Never blocks the program: a record goes into a bounded buffer and is sent by another thread. When
the buffer is full, as when no cluster answers, records are dropped and counted; standard error
reports it, at most every ten seconds, and so does a record in the topic when there is room again. A
program that is killed loses the buffer. Records have the form of those that `headrace ship logs`
writes.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from headrace.client.connection import ClientSettings, Setting
from headrace.client.errors import ClientError
from headrace.client.producer.producer import Producer
from headrace.wire.contract.headers import MESSAGE_ID
from headrace.wire.contract.logs import (
    DEBUG,
    ERROR,
    FATAL,
    INFO,
    LONGEST_SERVICE,
    TOPIC,
    TRACE,
    WARN,
)
from headrace.wire.contract.tracking import time_text

__all__ = ["Handler"]

MOST_RECORDS, MOST_KIB = 10_000, 16 * 1024
LONGEST_MESSAGE = 64 * 1024  # characters; the rest is cut, and the record reports it
TELL_EVERY_S = 10.0
OPEN_EVERY_S = 10.0  # a new producer, after one that failed for good
# Log lines of the client itself would be sent, and be logged again.
OWN = ("headrace.client", "headrace.logs")
# The attributes of every logging record; the others were given with `extra=`.
USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


class Handler(logging.Handler):
    """A logging handler: `service` names the program, `settings` are librdkafka's."""

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        topic: str = TOPIC,
        service: str | None = None,
        host: str | None = None,
        level: int | str = logging.NOTSET,
        close_s: float = 5.0,
        settings: Mapping[str, Setting] | None = None,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(level)
        self.topic, self.close_s = topic, close_s
        named = service or os.path.basename(sys.argv[0] or "python").partition(".")[0]
        self.service = named[:LONGEST_SERVICE]
        self.host = host or socket.gethostname()
        self.dropped = 0  # no room
        self.lost = 0  # the cluster did not accept them
        self._told, self._told_s = 0, 0.0
        self._reported = 0
        self._tell = tell or _on_standard_error
        self._bootstrap, self._settings = bootstrap, dict(settings or {})
        self._open()

    def _open(self) -> None:
        self._next_open_s = time.monotonic() + OPEN_EVERY_S
        bounds: dict[str, Setting] = {
            "queue.buffering.max.messages": MOST_RECORDS,
            "queue.buffering.max.kbytes": MOST_KIB,
            "linger.ms": 100,
            "compression.type": "zstd",
        }
        self._producer = Producer[bytes, bytes](
            self._bootstrap, max_block_s=0, settings={**bounds, **self._settings}
        )
        # Counts without a lock: a lock that another thread holds during a fork is never released.
        self._run, self._numbers, self._process = (
            uuid.uuid4().hex[:16],
            itertools.count(1),
            os.getpid(),
        )

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(OWN):
            return
        try:
            if os.getpid() != self._process:  # in a fork: the producer belongs to the parent
                self._open()
            self._report_drops()
            self._send(self._fields(record), record.created)
        except Exception:  # noqa: BLE001 - as logging's own handlers: a log breaks no program
            self.dropped += 1
            self.handleError(record)

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        if record.stack_info:
            message += f"\n{record.stack_info}"
        extra = {
            name: value if isinstance(value, str) else _as_text(value)
            for name, value in vars(record).items()
            if name not in USUAL
        }
        found = {"level": level_of(record.levelno), "message": message[:LONGEST_MESSAGE]}
        if len(message) > LONGEST_MESSAGE:
            found["cut"] = "begin"
        return {**found, "fields": {"logger": record.name, **extra}}

    def _send(self, fields: dict[str, Any], created_s: float) -> None:
        of_record = f"{self._run}:{next(self._numbers)}"
        value = {
            "id": of_record,
            "time": time_text(int(created_s * 1000)),
            "service": self.service,
            "host": self.host,
            **fields,
        }
        data = _dumps(value).encode(errors="replace")
        headers = [(MESSAGE_ID, of_record.encode())]
        try:
            key = self._run.encode()
            self._producer.take(self.topic, data, key, None, self._ended, None, headers)
        except ClientError as refusal:
            self.dropped += 1
            self._tell_of_drops(str(refusal))
            self._begin_anew_if_failed()

    def _begin_anew_if_failed(self) -> None:
        """Open a new producer if this one has failed for good: it takes no more records, though the
        reason may be over (a missing right, a topic that was created again). The old one ends on a
        thread of its own."""
        if self._producer.failed_for_good and time.monotonic() >= self._next_open_s:
            threading.Thread(target=self._producer.close, args=(0,), daemon=True).start()
            self._open()

    def _ended(self, error: object, message: Any) -> None:
        if error is not None:
            self.lost += 1
            self._tell_of_drops(str(self._producer.explain_delivery(error, self.topic)))

    def _tell_of_drops(self, why: str) -> None:
        now_s, gone = time.monotonic(), self.dropped + self.lost
        if gone > self._told and now_s - self._told_s >= TELL_EVERY_S:
            said = f"headrace: {gone - self._told:,} log records were dropped: {why}"
            # Update first: the report may come back as a record, if standard error is logged too.
            self._told, self._told_s = gone, now_s
            self._say(said)

    def _say(self, text: str) -> None:
        """Report; also called on the polling thread, which an exception would end."""
        with suppress(Exception):  # the handler's own failure has nowhere to be reported
            self._tell(text)

    def _report_drops(self) -> None:
        """Report drops in the topic, once there is room."""
        gone = self.dropped + self.lost
        if gone == self._reported or len(self._producer) >= MOST_RECORDS // 2:
            return
        said = f"{gone - self._reported:,} log records were dropped before this one"
        self._reported = gone
        self._send(
            {"level": WARN, "message": said, "fields": {"logger": "headrace.logs"}}, time.time()
        )

    def flush(self) -> None:
        """Does not wait: logging calls it in places where a program must not block."""

    def close(self) -> None:
        """Write the records that wait, for `close_s` seconds at most; reports how many are lost."""
        if os.getpid() == self._process:
            self._producer.close(self.close_s)
            self._told_s = -TELL_EVERY_S
            self._tell_of_drops("they could not be written before the end")
        super().close()


def _on_standard_error(text: str) -> None:
    if sys.stderr is not None:  # a program without a terminal may have none
        sys.stderr.write(text + "\n")


def _as_text(value: Any) -> str:
    """The value as JSON, or its repr; a value without either does not lose the record."""
    for written in (_dumps, repr):
        with suppress(Exception):  # an object of the program: cycles, keys that are not text
            return written(value)
    return f"<{type(value).__name__} that cannot be shown>"


def level_of(number: int) -> str:
    """The level for a number of logging, also for numbers in between."""
    for least, level in ((50, FATAL), (40, ERROR), (30, WARN), (20, INFO), (10, DEBUG)):
        if number >= least:
            return level
    return TRACE
