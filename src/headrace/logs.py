"""A program's own log into a topic: `logging.getLogger().addHandler(headrace.logs.Handler())`.

Never keeps the program waiting: a record goes into a bounded buffer and is sent by another thread.
When the buffer is full, as when no cluster answers, records are dropped and counted; standard error
says so, at most every ten seconds, and a record of its own says so in the topic when there is room
again. A program that is killed loses what is in the buffer. Records have the form of those that
`headrace ship logs` writes.
"""

from __future__ import annotations

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
from typing import Any

from confluent_kafka import KafkaError

from headrace.client.connection import Connection, Setting
from headrace.client.errors import ClientError
from headrace.client.producer import Producer
from headrace.contract.headers import MESSAGE_ID
from headrace.contract.logs import DEBUG, ERROR, FATAL, INFO, TOPIC, TRACE, WARN
from headrace.contract.tracking import time_text

MOST_RECORDS, MOST_KIB = 10_000, 16 * 1024
LONGEST_MESSAGE = 64 * 1024  # characters; the rest is cut, and the record says so
TELL_EVERY_S = 10.0
# What the client itself logs while it sends would be sent, and be logged.
OWN = ("headrace.client", "headrace.logs")
# What every record of logging has; the others were given with `extra=`.
USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


class Handler(logging.Handler):
    """`service` names the program; `settings` are librdkafka's."""

    def __init__(
        self,
        bootstrap: str | Connection | None = None,
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
        self.service = service or os.path.basename(sys.argv[0] or "python").partition(".")[0]
        self.host = host or socket.gethostname()
        self.dropped = 0  # no room
        self.lost = 0  # the cluster did not take them
        self._told, self._told_s = 0, 0.0
        self._reported = 0
        self._tell = tell or (lambda text: sys.stderr.write(text + "\n"))
        self._bootstrap, self._settings = bootstrap, dict(settings or {})
        self._counting = threading.Lock()
        self._open()

    def _open(self) -> None:
        bounds: dict[str, Setting] = {
            "queue.buffering.max.messages": MOST_RECORDS,
            "queue.buffering.max.kbytes": MOST_KIB,
            "linger.ms": 100,
            "compression.type": "zstd",
        }
        self._producer = Producer[bytes, bytes](
            self._bootstrap, max_block_s=0, settings={**bounds, **self._settings}
        )
        self._run, self._number, self._process = uuid.uuid4().hex[:16], 0, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(OWN):
            return
        try:
            if os.getpid() != self._process:  # of a fork: the parent's producer is the parent's
                self._open()
            self._report_drops()
            self._send(self._fields(record), record.created)
        except Exception:  # noqa: BLE001 - as logging's own handlers: a log breaks no program
            self.handleError(record)

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        if record.stack_info:
            message += f"\n{record.stack_info}"
        extra = {
            name: value if isinstance(value, str) else _dumps(value)
            for name, value in vars(record).items()
            if name not in USUAL
        }
        found = {"level": level_of(record.levelno), "message": message[:LONGEST_MESSAGE]}
        if len(message) > LONGEST_MESSAGE:
            found["cut"] = "begin"
        return {**found, "fields": {"logger": record.name, **extra}}

    def _send(self, fields: dict[str, Any], created_s: float) -> None:
        with self._counting:
            self._number += 1
            of_record = f"{self._run}:{self._number}"
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

    def _ended(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.lost += 1
            self._tell_of_drops(str(self._producer.explain_delivery(error, self.topic)))

    def _tell_of_drops(self, why: str) -> None:
        now_s, gone = time.monotonic(), self.dropped + self.lost
        if gone > self._told and now_s - self._told_s >= TELL_EVERY_S:
            self._tell(f"headrace: {gone - self._told:,} log records were dropped: {why}")
            self._told, self._told_s = gone, now_s

    def _report_drops(self) -> None:
        """In the topic, once there is room."""
        gone = self.dropped + self.lost
        if gone == self._reported or len(self._producer) >= MOST_RECORDS // 2:
            return
        said = f"{gone - self._reported:,} log records were dropped before this one"
        self._reported = gone
        self._send(
            {"level": WARN, "message": said, "fields": {"logger": "headrace.logs"}}, time.time()
        )

    def flush(self) -> None:
        """Waits for nothing: logging calls it in places where a program must not stand still."""

    def close(self) -> None:
        """Write what waits, for `close_s` seconds at most; what is left is told of."""
        if os.getpid() == self._process:
            self._producer.close(self.close_s)
            self._told_s = -TELL_EVERY_S
            self._tell_of_drops("they could not be written before the end")
        super().close()


def level_of(number: int) -> str:
    """logging's numbers, and those between them."""
    for least, level in ((50, FATAL), (40, ERROR), (30, WARN), (20, INFO), (10, DEBUG)):
        if number >= least:
            return level
    return TRACE
