"""The calls in the guide to delayed messages run as they stand there."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headrace.client import Admin, Producer
from headrace.testing import Broker

pytestmark = pytest.mark.integration

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guide"


def examples(guide: str, language: str) -> list[str]:
    text = (GUIDES / guide).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_every_call_of_the_guide_to_delayed_messages_is_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = examples("delay.md", "py")
    assert len(found) >= 2
    with Broker(delay=True) as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        admin = Admin()
        admin.topics.create("checkouts", partitions=2)
        admin.delayed.enable("checkouts")
        with Producer() as producer:
            names: dict[str, Any] = {
                "Admin": Admin,
                "producer": producer,
                "order": "42",
                "k": "anna",
                "v": "tea",
                "datetime": datetime,
                "timedelta": timedelta,
                "ZoneInfo": ZoneInfo,
            }
            for number, example in enumerate(found, start=1):
                exec(compile(example, f"example {number} of delay.md", "exec"), names)
