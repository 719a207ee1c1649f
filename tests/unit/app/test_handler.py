"""A handler's signature says what it is given; what does not fit is refused where it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace.app.app import App
from headrace.app.attempts.handler import plan
from headrace.app.message import Message


async def only_value(order: dict) -> None: ...  # type: ignore[type-arg]


def with_all(message: Message, order: str, db: object) -> None: ...


def only_message(message: Message) -> None: ...


def generator(order: str) -> Iterator[str]:
    yield order


async def async_generator(order: str) -> AsyncIterator[str]:
    yield order


class Callable:
    async def __call__(self, value: bytes, *more: int, flag: bool = False) -> None: ...


class Service:
    def handle(self, value: bytes) -> None: ...


@pytest.mark.parametrize(
    ("handler", "kind", "parts"),
    [
        (only_value, "coroutine", ["value"]),
        (with_all, "function", ["message", "value", "db"]),
        (only_message, "function", ["message"]),
        (generator, "generator", ["value"]),
        (async_generator, "async generator", ["value"]),
        (Service().handle, "function", ["value"]),
    ],
)
def test_the_plan_of_a_call(handler: Any, kind: str, parts: list[str]) -> None:
    planned = plan(handler)
    assert planned.kind == kind
    assert [part for _, part in planned.parts] == parts


def test_batches_take_lists() -> None:
    def batch(orders: list[str], messages: list[Message]) -> None: ...

    planned = plan(batch, batch=True)
    assert planned.value_hint is str
    assert [part for _, part in planned.parts] == ["value", "message"]


def unhinted(order) -> None: ...


def two_values(a: str, b: str) -> None: ...


def nothing() -> None: ...


def unknown_hint(order: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def single_message(orders: list[str], message: Message) -> None: ...


@pytest.mark.parametrize(
    ("handler", "batch", "says"),
    [
        (unhinted, False, "type hint"),
        (two_values, False, "two parameters"),
        (nothing, False, "neither a value nor a message"),
        (unknown_hint, False, "Nowhere"),
        (only_value, True, "list"),
        (single_message, True, r"list\[Message\]"),
        (3, False, "function"),
    ],
)
def test_what_does_not_fit_is_refused(handler: Any, batch: bool, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        plan(handler, batch=batch)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order_by": "value"}, "order_by"),
        ({"concurrency": 0}, "concurrency"),
        ({"batch": 5, "order_by": "key"}, "mixes keys"),
        ({"batch": 0}, "at least 1"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], says: str) -> None:
    app = App(group="g")
    with pytest.raises(ValueError, match=says):

        @app.on("orders", **options)
        async def handle(order: list[str]) -> None: ...


def test_a_handler_that_asks_for_a_database_needs_once() -> None:
    app = App(group="g")
    with pytest.raises(ValueError, match="once="):

        @app.on("orders")
        def handle(order: str, db: object) -> None: ...


def test_one_topic_has_one_handler_in_a_group() -> None:
    app = App(group="g")
    app.on("orders")(only_value)
    with pytest.raises(ValueError, match="two"):
        app.on("orders")(generator)
