"""OpenTelemetry: produce, delay, every attempt, dead letter and redrive are one trace.

`App(..., observers=[Tracing()])` opens a span around each attempt, as a child of the one whose
context the record carries (the header `traceparent`), and writes its own into every copy: retries,
dead letters and published records. Delay and redrive hand headers on as they are. A producer
joins in with `Producer(..., interceptors=[TracedSends()])`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from headrace.app.message import Message
from headrace.app.observation.observer import Observer
from headrace.app.subscription import Subscription
from headrace.client.producer.interceptors import ProducerInterceptor
from headrace.client.records import HeaderList, Outgoing

NAME = "headrace.app"


class Tracing(Observer):
    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Without a provider, the global one of the program is used."""
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)

    def around(
        self, subscription: Subscription, message: Message
    ) -> AbstractContextManager[None] | None:
        return self._attempt(subscription, message)

    @contextmanager
    def _attempt(self, subscription: Subscription, message: Message) -> Iterator[None]:
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=propagate.extract(_carrier(message.headers)),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(subscription, message),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def headers(self, subscription: Subscription, message: Message) -> HeaderList:
        return _current()

    def sending(self) -> HeaderList:
        """The current trace context, so that a handler's sends continue its trace; empty without
        one."""
        return _current()


class TracedSends(ProducerInterceptor):
    """A span for each record sent; its context travels in the record."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)

    def on_send(self, record: Outgoing[Any, Any]) -> Outgoing[Any, Any]:
        attributes = {"messaging.system": "kafka", "messaging.destination.name": record.topic}
        with self._tracer.start_as_current_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            record.headers.extend(_current())
        return record


def _attributes(subscription: Subscription, message: Message) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.topic,
        "messaging.destination.partition.id": str(message.partition),
        "messaging.kafka.offset": message.offset,
        "messaging.message.id": message.id,
        "headrace.handler": subscription.name,
        "headrace.attempt": message.attempt,
        "headrace.redrives": message.redrives,
    }


def _carrier(headers: HeaderList) -> dict[str, str]:
    """The headers as a dictionary. The last of a name counts: copies have the newest context at
    their end."""
    return {name: value.decode(errors="replace") for name, value in headers if value is not None}


def _current() -> HeaderList:
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return [(name, text.encode()) for name, text in carrier.items()]
