"""What an app shows of itself: numbers, health, one trace for the life of a message, AsyncAPI."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass

import confluent_kafka
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from headrace.app import App, Message, Publish, Retry
from headrace.app.asyncapi import document
from headrace.app.observation.metrics import AppMetrics, letters_of
from headrace.app.observation.status_pages import AppStatusPages
from headrace.app.tracing import TracedSends, Tracing
from headrace.client import Consumer, Producer
from headrace.client.connection import connection
from headrace.prometheus_text import render
from headrace.services.redrive.letters import Selection
from headrace.services.redrive.service import DeadLetters
from headrace.testing import Broker, TestApp
from tests.patience import until

pytestmark = pytest.mark.usefixtures("quick_producers")

QUICK = Retry(attempts=2, first="5ms", longest="5ms")


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


def produce(broker, topic, *values):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def written(app, topic):
    """How many letters lie there."""
    return letters_of(app).get(topic, (0, None))[0]


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_numbers_health_and_readiness(broker):
    app = App(broker.bootstrap, group="counted")

    @app.on("counted", retry=QUICK)
    def handle(value: str) -> None:
        if value == "bad":
            raise LookupError

    window = AppStatusPages(app)
    try:
        assert get(window.port, "/health")[0] == 503
        assert get(window.port, "/ready")[0] == 503
        produce(broker, "counted", b"good", b"bad", b"good")
        with app.running():
            stats = app.subscriptions[0].stats
            until(lambda: stats.handled == 2 and stats.parked == 1)
            until(lambda: written(app, "counted.counted.dead") == 1)  # it is written
            assert get(window.port, "/health")[0] == 200
            assert get(window.port, "/ready")[0] == 200
            status, text = get(window.port, "/metrics")
        assert status == 200
        assert get(window.port, "/elsewhere")[0] == 404
    finally:
        window.close()
    name = app.subscriptions[0].name
    labels = f'{{group="counted",handler="{name}"}}'
    assert f"headrace_app_handled_total{labels} 2\n" in text
    assert f"headrace_app_failed_total{labels} 2\n" in text
    assert f"headrace_app_parked_total{labels} 1\n" in text
    assert 'headrace_app_dead_letters{topic="counted.counted.dead"} 1\n' in text
    assert "headrace_app_dead_letter_oldest_timestamp_seconds{" in text


def test_numbers_are_there_while_the_cluster_is_away():
    app = App("127.0.0.1:1", group="alone", settings={"socket.timeout.ms": 100})

    @app.on("orders", dead_letters=False)
    def handle(value: str) -> None: ...

    app.connection.timeout_s = 0.2
    assert "headrace_app_received_total" in render(AppMetrics(app).families())


@pytest.mark.integration
def test_produce_attempts_dead_letter_and_redrive_are_one_trace(broker):
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app = App(broker.bootstrap, group="traced", observers=[Tracing(provider)])
    mended = []

    @app.on("traced", retry=QUICK, publish="traced-results")
    def handle(value: str, message: Message) -> Publish:
        if not mended:
            raise LookupError(value)
        return Publish("traced-results", value.upper())

    with Producer(broker.bootstrap, interceptors=[TracedSends(provider)]) as producer:
        producer.send_sync("traced", "hello")
    with app.running():
        stats = app.subscriptions[0].stats
        until(lambda: written(app, "traced.traced.dead") == 1)  # it is written
        mended.append(True)
        letters = DeadLetters(connection(bootstrap=broker.bootstrap))
        [step] = letters.redrive("traced.traced.dead", Selection(), by="test")
        assert step.refusal == ""
        until(lambda: stats.handled == 1)
    finished = spans.get_finished_spans()
    assert [span.name for span in finished] == ["send traced"] + ["process traced"] * 3
    assert len({span.context.trace_id for span in finished}) == 1
    assert [span.attributes.get("headrace.redrives") for span in finished] == [None, 0, 0, 1]
    failed = [span.status.status_code.name for span in finished]
    assert failed == ["UNSET", "ERROR", "ERROR", "UNSET"]
    with Consumer(broker.bootstrap, group="reads", settings={}) as consumer:
        consumer.subscribe(["traced-results"])
        record = next(iter(consumer))
    trace_id = f"{finished[0].context.trace_id:032x}"
    assert trace_id in record.header("traceparent").decode()


@pytest.mark.integration
def test_a_delay_and_what_a_handler_sends_belong_to_the_same_trace():
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app = App("nowhere:9092", group="traced", observers=[Tracing(provider)])

    @app.on("traced", retry=Retry(attempts=2, first="1m", longest="1m"))
    async def handle(value: str, message: Message) -> None:
        app.send("notes", f"attempt {message.attempt}", headers={"kind": "note"})
        raise LookupError(value)

    with TestApp(app, topics=["notes"]) as running:
        with Producer(running.broker.bootstrap, interceptors=[TracedSends(provider)]) as producer:
            producer.send_sync("traced", "hello")
        running.advance(minutes=2)
        notes = running.records("notes")
        [letter] = running.dead_letters("traced")
    first, *attempts = spans.get_finished_spans()
    assert [span.name for span in attempts] == ["process traced"] * 2
    parents = [first, *attempts]
    for span, parent in zip(attempts, parents, strict=False):
        assert span.parent is not None and span.parent.span_id == parent.context.span_id
    assert [note.header("kind") for note in notes] == [b"note", b"note"]
    for note, attempt in zip(notes, attempts, strict=True):
        assert note.header("traceparent") == context_of(attempt)
    assert letter.header("traceparent") == context_of(attempts[1])


def context_of(span):
    at = span.context
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}".encode()


class Line(BaseModel):
    sku: str
    more: "list[Line]" = []


class Order(BaseModel):
    id: int
    lines: list[Line]


@dataclass
class Note:
    text: str


def test_asyncapi_tells_topics_and_shapes():
    app = App("localhost:9092", group="shop")

    @app.on("orders", order_by="key", publish="invoices")
    async def bill(order: Order) -> None:
        """Bill an order."""

    @app.on("^notes-.*")
    def note(note: Note) -> None: ...

    @app.on("raw")
    def raw(value: bytes) -> None: ...

    described = document(app)
    assert described["asyncapi"] == "3.0.0"
    assert set(described["channels"]) == {"orders", "invoices", "-notes-.-", "raw"}
    [message] = described["channels"]["orders"]["messages"].values()
    assert message["payload"]["properties"]["id"] == {"title": "Id", "type": "integer"}
    operation = described["operations"]["receive-orders"]
    assert operation["summary"] == "Bill an order."
    assert operation["x-headrace"]["order_by"] == "key"
    assert described["operations"]["send-invoices"]["action"] == "send"
    assert "$ref" not in json.dumps(described["channels"])
