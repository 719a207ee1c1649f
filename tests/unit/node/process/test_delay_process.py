"""The delay service is an extra: a node without its package says what to install, and runs on."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.node.process.background import delay_process
from headrace.node.process.background.delay_process import LONGEST_WAIT_MS, DelayProcess
from headrace.node.process.loop import Loop
from headrace.wire.contract.delay_topics import REGISTRY


@dataclass
class Turned:
    """A loop whose clock the test moves."""

    now: Any = field(default_factory=lambda: SimpleNamespace(monotonic_ms=0))
    looks: list[Any] = field(default_factory=list)

    @property
    def timers(self) -> Any:
        return SimpleNamespace(every=lambda every_ms, call, now_ms: self.looks.append(call))

    def at(self, monotonic_ms: int) -> None:
        self.now.monotonic_ms = monotonic_ms
        self.looks[0]()


def test_a_missing_package_is_named_once_and_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        delay_process, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=asked.append))
    )
    monkeypatch.setattr(delay_process, "how_to_add", lambda *words: " ".join(words))
    loop = Turned()
    beside = DelayProcess(cast(Loop, loop), lambda: ["/nonexistent"])
    with caplog.at_level(logging.WARNING):
        loop.at(100)
        assert not asked, "a node without delayed topics needs nothing"
        beside.image_changed(cast(Any, SimpleNamespace(topics={REGISTRY: None})))
        for moment in (200, 300, 200 + LONGEST_WAIT_MS):
            loop.at(moment)
    assert asked == ["rocksdict", "rocksdict"]
    assert [record.getMessage() for record in caplog.records] == [
        "Delayed messages wait until the delay service runs. It needs rocksdict delay"
    ]
    assert beside.pid is None
