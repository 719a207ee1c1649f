"""The examples of the client's guide run, in their order, on a real broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.testing import Broker

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "client.md"


def test_every_example_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    assert len(examples) >= 9
    names: dict[str, Any] = {}
    with Broker() as broker:
        for number, example in enumerate(examples, start=1):
            here = example.replace("localhost:9092", broker.bootstrap)
            exec(compile(here, f"example {number} of client.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "b'42 apples'" in shown
    assert "written Sent(topic='orders'" in shown
    assert "skipped orders-" in shown
