"""Metrics as Prometheus reads them: text format 0.0.4, checked by the library's own parser."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headrace.prometheus_text import Family, Histogram, render

HOSTILE = 'a"b\\c\nd'


def read(text: str) -> dict[str, float]:
    """Each series with its labels -> its value, as others see it."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_numbers_and_labels_come_out_as_they_went_in() -> None:
    samples: list[tuple[dict[str, Any], float]] = [
        ({}, 3),
        ({"topic": HOSTILE, "partition": 0}, 0.1),
        ({"topic": "x"}, 2.0**60),
    ]
    text = render([Family("headrace_tea", "gauge", "Cups.", samples)])
    assert text.startswith("# HELP headrace_tea Cups.\n# TYPE headrace_tea gauge\nheadrace_tea 3\n")
    assert read(text) == {
        "headrace_tea[]": 3,
        f"headrace_tea{[('partition', '0'), ('topic', HOSTILE)]}": 0.1,
        "headrace_tea[('topic', 'x')]": 2.0**60,
    }


def test_a_histogram_adds_its_buckets_up() -> None:
    text = render([Histogram("tea_s", "Time.", [0.002, 1], [({"api": "Fetch"}, [2, 0, 5], 7.25)])])
    assert text.splitlines()[2:] == [
        'tea_s_bucket{api="Fetch",le="0.002"} 2',
        'tea_s_bucket{api="Fetch",le="1"} 2',
        'tea_s_bucket{api="Fetch",le="+Inf"} 7',
        'tea_s_sum{api="Fetch"} 7.25',
        'tea_s_count{api="Fetch"} 7',
    ]
    assert read(text)["tea_s_count[('api', 'Fetch')]"] == 7


def test_a_metric_without_samples_is_still_explained() -> None:
    text = render([Family("headrace_none", "counter", "Nothing yet.", [])])
    assert text == "# HELP headrace_none Nothing yet.\n# TYPE headrace_none counter\n"


def test_numbers_that_are_none_are_written_as_prometheus_reads_them() -> None:
    numbers = [("up", float("inf")), ("down", float("-inf")), ("none", float("nan"))]
    text = render([Family("tea", "gauge", "Cups.", [({"to": to}, cups) for to, cups in numbers])])
    assert [line.split()[-1] for line in text.splitlines()[2:]] == ["+Inf", "-Inf", "NaN"]
    up, down, none = read(text).values()
    assert (up, down) == (float("inf"), float("-inf")) and none != none
