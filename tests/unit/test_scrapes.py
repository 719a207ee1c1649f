"""Names, kinds, labels and words of metrics stay as they are: dashboards and alarms know them.

The files of `scrapes` are scrapes as they once were, some of them written by `prometheus_client`.
They are compared as Prometheus reads them: `7` and `7.0` are the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.app.observation import metrics as app_metrics
from headrace.app.observation.metrics import AppMetrics
from headrace.pipelines.metrics import pipeline_families
from headrace.prometheus_text import Family, render
from headrace.services.http.counters import door_families
from headrace.services.outbox.metrics import relay_families
from headrace.services.shipping import counters as shipping
from headrace.services.shipping.counters import shipper_families
from headrace.services.tracking.metrics import collector_families
from headrace.wire.contract import own_records
from tests.unit.scrapes import sources

SCRAPES = Path(__file__).parent / "scrapes"


def read(text: str) -> list[Any]:
    """Each metric with all that Prometheus learns of it, in the order of the text."""
    return [
        (family.name, family.type, family.documentation, [tuple(one) for one in family.samples])
        for family in text_string_to_metric_families(text)
    ]


def told_of(name: str) -> Iterable[Family]:
    match name:
        case "app-running":
            return AppMetrics(sources.an_app(runs=True)).families()
        case "app-stopped":
            return AppMetrics(sources.an_app(runs=False)).families()
        case "http":
            return door_families(sources.a_door(), sources.GAUGES)
        case "outbox":
            return relay_families(*sources.a_relay())
        case "pipeline":
            return pipeline_families(sources.a_pipeline(), sources.NOON)
        case "ship":
            return shipper_families(sources.a_shipper(), sources.GAUGES)
        case "track":
            return collector_families(sources.a_collector())
    raise AssertionError(f"nothing writes {name}.txt")


@pytest.mark.parametrize("name", sorted(each.stem for each in SCRAPES.glob("*.txt")))
def test_a_scrape_is_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_metrics, "letters_of", lambda _: sources.DEAD_LETTERS)
    monkeypatch.setattr(own_records, "_skipped", Counter())  # other tests of this process skip some
    before = read((SCRAPES / f"{name}.txt").read_text("utf-8"))
    assert len(before) > 5
    assert read(render(told_of(name))) == before


def test_each_counter_of_a_shipper_is_told() -> None:
    assert [one.name for one in fields(shipping.Counters)] == list(shipping.WORDS)
