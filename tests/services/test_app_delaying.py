"""Who brings back what waits for long: the cluster's service, or one that the app starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, Message, Retry
from headrace.app.retries import delay_service
from headrace.client.delay.instances import DelayInstances, NoDelayService
from headrace.testing import Broker
from tests.sockets.app.conftest import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker() as broker:
        yield Cluster(broker)


def make(cluster: Any, mode: Any) -> tuple[App, list[int]]:
    app = App(cluster.bootstrap, group="g", delay=mode)
    attempts: list[int] = []

    @app.on("orders", retry=Retry(attempts=2, first="2500ms", longest="2500ms", jitter=0))
    async def handle(value: str, message: Message) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise OSError

    return app, attempts


def test_an_app_starts_the_service_when_nobody_else_has(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_service, "PATIENCE_S", 0.1)
    cluster.topic("orders")
    app, attempts = make(cluster, "auto")
    with app.running():
        app.send("orders", "x")
        cluster.until(lambda: attempts == [1, 2])
        [instance] = DelayInstances(app.connection).all()
        assert instance.name.startswith("app-")
    cluster.until(lambda: not DelayInstances(app.connection).all())  # it ended with the app


def test_an_app_that_requires_the_service_does_not_begin_without(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_service, "PATIENCE_S", 0.1)
    cluster.topic("orders")
    app, _ = make(cluster, "require")
    with pytest.raises(NoDelayService, match="headrace delay serve"):
        app.start()
    assert app.worker is None
