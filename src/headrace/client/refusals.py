"""What brokers say against our login or our certificate, heard in passing.

librdkafka tries again for ever and tells only its error callback why. Here the last such word is
kept, so that whoever waits hears it instead of a time-out; a program's own `error_cb` hears all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

LOGIN = (KafkaError._AUTHENTICATION, KafkaError._SSL)

# A broker that is stopped in the middle of a handshake looks like one that refuses, but only once.
ENOUGH = 2
# librdkafka tries each broker again after 10 seconds at most: what is older was cured.
RECENT_S = 30.0


class Refusals:
    def __init__(self, conf: dict[str, Any]) -> None:
        self._last: KafkaError | None = None
        self._heard_at = 0.0
        self._in_a_row = 0
        self._then: Callable[[KafkaError], object] | None = conf.get("error_cb")
        conf["error_cb"] = self

    def __call__(self, error: KafkaError) -> None:
        if error.code() in LOGIN:
            self._last, self._heard_at = error, time.monotonic()
            self._in_a_row += 1
        if self._then is not None:
            self._then(error)

    @property
    def recent(self) -> KafkaError | None:
        """The last word, if it may be why nothing moves now."""
        return self._last if time.monotonic() - self._heard_at < RECENT_S else None

    def taken(self) -> KafkaError | None:
        """The last word, once, if it was said again and again."""
        if self._in_a_row < ENOUGH:
            return None
        self._in_a_row = 0
        return self._last

    def forget(self) -> None:
        """We are in."""
        self._in_a_row = 0
