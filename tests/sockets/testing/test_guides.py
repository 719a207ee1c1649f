"""The Python of the guides on tests and on delayed messages runs as it stands there."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headrace.client import Admin, Producer
from headrace.testing import Broker

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guide"


def examples(guide: str, language: str) -> list[str]:
    text = (GUIDES / guide).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_every_test_of_the_guide_passes() -> None:
    found = examples("testing.md", "python")
    assert len(found) >= 3
    for number, example in enumerate(found, start=1):
        names: dict[str, Any] = {}
        exec(compile(example, f"example {number} of testing.md", "exec"), names)
        for test in [value for name, value in names.items() if name.startswith("test_")]:
            if signature(test).parameters:
                with Broker() as broker:
                    test(broker)
            else:
                test()


def test_every_call_of_the_guide_to_delayed_messages_is_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = examples("delay.md", "py")
    assert len(found) >= 2
    with Broker(delay=True) as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        admin = Admin()
        admin.topics.create("orders", partitions=2)
        admin.delayed.enable("orders")
        with Producer() as producer:
            names: dict[str, Any] = {
                **{"Admin": Admin, "producer": producer, "order": "42", "k": "anna", "v": "tea"},
                **{"datetime": datetime, "timedelta": timedelta, "ZoneInfo": ZoneInfo},
            }
            for number, example in enumerate(found, start=1):
                exec(compile(example, f"example {number} of delay.md", "exec"), names)
