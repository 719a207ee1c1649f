"""Interceptors see every record before it is sent, and its outcome.

Interceptors run in the order given, before serializers and the partitioner. `on_send` returns the
record, changed or not, or raises to refuse it: the caller of `send` gets that exception.
`on_delivered` gets the result of each record, on the thread that receives it; its exceptions are
logged and affect nothing else. Subclass and override what you need.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from headrace.client.errors import ClientError, Misuse
from headrace.client.records import Outgoing, Sent

log = logging.getLogger("headrace.client")


class ProducerInterceptor:
    """Sees, and may change, every record before it is sent: inherit and override what you need."""

    def on_send(self, record: Outgoing[Any, Any]) -> Outgoing[Any, Any]:
        return record

    def on_delivered(
        self, record: Outgoing[Any, Any], sent: Sent | None, error: ClientError | None
    ) -> None:
        """Exactly one of `sent` and `error` is given."""


def intercept(
    interceptors: Sequence[ProducerInterceptor], record: Outgoing[Any, Any]
) -> Outgoing[Any, Any]:
    for interceptor in interceptors:
        record = interceptor.on_send(record)
        if not isinstance(record, Outgoing):
            raise Misuse(f"{type(interceptor).__name__}.on_send must return the record.")
    return record


def tell(
    interceptors: Sequence[ProducerInterceptor],
    record: Outgoing[Any, Any],
    sent: Sent | None,
    error: ClientError | None,
) -> None:
    for interceptor in interceptors:
        try:
            interceptor.on_delivered(record, sent, error)
        except Exception:
            log.exception("%s.on_delivered failed", type(interceptor).__name__)
