"""The Grafana dashboard of `deploy/` asks for metrics and labels that our programs really show."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import defaultdict
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.sockets.server.test_server import Running

PROJECT = Path(__file__).resolve().parents[3]
SCRAPES = PROJECT / "tests" / "unit" / "scrapes"
# Prometheus adds them to every sample.
OF_PROMETHEUS = {"job", "instance", "le"}


def labels_by_metric(texts: list[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        for family in text_string_to_metric_families(text):
            # Of a node at rest many have no sample yet: their name is known, their labels are not.
            for end in ("", "_total") if family.type == "counter" else ("", "_bucket"):
                found[family.name + end] |= set()
            for sample in family.samples:
                found[sample.name] |= set(sample.labels)
    return found


def test_each_metric_and_label_of_the_dashboard_exists(tmp_path: Path) -> None:
    with Running(tmp_path, metrics="127.0.0.1:0") as running:
        url = f"http://127.0.0.1:{running.server.metrics.port}/metrics"
        with urllib.request.urlopen(url) as answer:
            node = answer.read().decode()
    known = labels_by_metric([node, *(each.read_text() for each in SCRAPES.glob("*.txt"))])
    dashboard = json.loads((PROJECT / "deploy" / "grafana.json").read_text())
    asked = [one["expr"] for panel in dashboard["panels"] for one in panel.get("targets", [])]
    assert len(asked) > 30
    for expression in asked:
        names = set(re.findall(r"headrace_[a-z_]+", expression))
        assert names and names <= set(known), expression
        labels = {
            label.strip()
            for each in re.findall(r"by \(([^)]*)\)", expression)
            for label in each.split(",")
        }
        (name,) = names
        if known[name]:
            assert labels - OF_PROMETHEUS <= known[name], expression
    for kind in ("headrace_app_", "headrace_pipeline_", "headrace_requests_"):
        assert any(kind in expression for expression in asked)
