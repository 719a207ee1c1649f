"""examples/logs and examples/host-metrics: their rules find what their data hold."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipelines.pipeline_names import load
from headrace.pipelines.testing import run
from headrace.services.shipping.formats import parsed

pytestmark = pytest.mark.timeout(1200)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def minutes(rows: list[dict[str, Any]], rule: str) -> list[tuple[str, str]]:
    found = [(one["time"], one["state"]) for one in rows if one["rule"] == rule]
    return [(f"{at:%H:%M}", state) for at, state in sorted(found)]


def test_refused_cards_raise_one_alert(spark: SparkSession, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "logs"))
    sys.modules.pop("shop", None)
    import shop

    lines = []
    for number, text in enumerate(shop.lines()):
        entry = parsed(text)
        assert entry.time_ms is not None
        one = {"id": f"f:{number}", "time": time_text(entry.time_ms), "service": "shop"}
        lines.append(one | {"level": entry.level, "message": entry.message})
    outcome = run(load(f"{EXAMPLES}/logs/alerts.py:shop-alerts"), lines, spark)
    assert not outcome.bad
    assert minutes(outcome.rows, "cards-refused") == [("12:04", "raised"), ("12:06", "cleared")]
    assert not minutes(outcome.rows, "fatal")


def test_a_busy_host_raises_one_alert(spark: SparkSession) -> None:
    begin_ms = 1_769_860_800_000  # 2026-01-31T12:00Z
    samples = [
        {"id": f"s{n}", "time": time_text(begin_ms + n * 10_000), "host": "h"}
        | {"metrics": {"cpu_percent": 95.0 if 2 <= n // 6 < 5 else 10.0}}
        for n in range(60)
    ]
    outcome = run(load(f"{EXAMPLES}/host-metrics/alerts.py:my-alerts"), samples, spark)
    assert not outcome.bad
    assert minutes(outcome.rows, "cpu-busy") == [("12:04", "raised"), ("12:06", "cleared")]
