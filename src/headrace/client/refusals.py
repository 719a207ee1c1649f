"""Remembers errors of brokers about our login or certificate, and logs that no broker answers.

librdkafka retries for ever and reports the reason only to its error callback. The last such error
is kept here, so that a waiting caller gets it instead of a time-out; a program's own `error_cb`
gets all. That no broker answers is logged, once in a while: a program that polls gets no other
notice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from headrace.client.connection import NOWHERE
from headrace.client.errors import unreachable

log = logging.getLogger("headrace.client")

LOGIN = (KafkaError._AUTHENTICATION, KafkaError._SSL)

# A broker that is stopped in the middle of a handshake looks like a refusal, but only once.
ENOUGH = 2
# librdkafka retries each broker after 10 seconds at most: an older error is over.
RECENT_S = 30.0


class Refusals:
    def __init__(self, conf: dict[str, Any]) -> None:
        self._last: KafkaError | None = None
        self._heard_at = 0.0
        self._in_a_row = 0
        self._bootstrap: str = conf["bootstrap.servers"]
        self._is_quiet = conf.get("logger") is NOWHERE
        self._lonely_until = 0.0
        self._then: Callable[[KafkaError], object] | None = conf.get("error_cb")
        conf["error_cb"] = self

    def __call__(self, error: KafkaError) -> None:
        if error.code() in LOGIN:
            self._last, self._heard_at = error, time.monotonic()
            self._in_a_row += 1
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._say_so()
        if self._then is not None:
            self._then(error)

    def _say_so(self) -> None:
        now = time.monotonic()
        if now >= self._lonely_until and not self._is_quiet:
            self._lonely_until = now + RECENT_S
            log.warning("%s It keeps trying.", unreachable(self._bootstrap))

    @property
    def recent(self) -> KafkaError | None:
        """The last error, if it may be the reason why nothing happens now."""
        return self._last if time.monotonic() - self._heard_at < RECENT_S else None

    def taken(self) -> KafkaError | None:
        """The last error, once, if it was repeated."""
        if self._in_a_row < ENOUGH:
            return None
        self._in_a_row = 0
        return self._last

    def forget(self) -> None:
        """The login worked: forget the errors."""
        self._in_a_row = 0
