"""The Python in README and guide runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.testing import Broker

PROJECT = Path(__file__).resolve().parents[3]
DOCUMENTS = ("README.md", "docs/guide/getting-started.md")


def examples() -> list[tuple[str, str]]:
    found = []
    for name in DOCUMENTS:
        blocks = re.findall(r"```python\n(.*?)```", (PROJECT / name).read_text("utf-8"), re.S)
        found += [(f"{name}-{number}", block) for number, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize(("name", "code"), examples(), ids=lambda v: v if len(v) < 50 else "")
def test_an_example_runs(name: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(settings={"num.partitions": 3 if '"orders"' in code else 1}) as broker:
        names: dict[str, object] = {}
        exec(code.replace("localhost:9092", broker.bootstrap), names)
        for test in [value for key, value in names.items() if key.startswith("test_")]:
            test()  # type: ignore[operator]
    if "print(" in code:
        assert "b'" in capsys.readouterr().out
