"""Consume, transform, produce in one transaction: what a failure or a stop leaves is seen by
nobody.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace import App, Message, Publish, Retry


@pytest.mark.parametrize(("order_by", "kind"), [(None, "coroutine"), ("partition", "function")])
def test_every_record_leads_to_its_results_once(cluster: Any, order_by: Any, kind: str) -> None:
    cluster.topic("in", partitions=3)
    cluster.topic("out", partitions=2)
    app = App(cluster.bootstrap, group="g")

    def double(value: str, message: Message) -> Any:
        if value == "7" and message.attempt < 3:
            raise OSError("not yet")
        if value == "9":
            raise ValueError("never")
        return [Publish("out", value + "a"), Publish("out", value + "b")]

    async def double_async(value: str, message: Message) -> Any:
        return double(value, message)

    app.on(
        "in",
        exactly_once=True,
        order_by=order_by,
        retry=Retry(attempts=3, first="5ms", longest="5ms"),
    )(double if kind == "function" else double_async)
    with app.running():
        for number in range(500):
            app.send("in", str(number), key=str(number))
        cluster.until(lambda: app.subscriptions[0].stats.handled == 500)
    expected = {f"{n}{letter}".encode() for n in range(500) if n != 9 for letter in "ab"}
    seen = [record.value for record in cluster.records("out")]  # read_committed
    assert len(seen) == len(expected)
    assert set(seen) == expected
    assert [record.value for record in cluster.records("in.g.dead")] == [b"9"]
    committed = cluster.committed("g")
    counts = [sum(1 for r in cluster.records("in") if r.partition == p) for p in range(3)]
    assert [committed["in", p] for p in range(3)] == counts


@pytest.mark.parametrize("wrong", [{"concurrency": 2}, {"order_by": "key"}, {"batch": 5}])
def test_what_it_cannot_promise_is_refused_at_once(wrong: dict[str, Any]) -> None:
    app = App(group="g")
    with pytest.raises(ValueError, match="exactly_once"):

        @app.on("in", exactly_once=True, **wrong)
        async def handle(values: list[str]) -> None: ...
