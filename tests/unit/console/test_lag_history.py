"""Lag over time: what the store keeps and forgets, how fast a group reads, and the drawing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.admin.group_lags import GroupLag, TopicLag
from headrace.console.history import lag_store
from headrace.console.history.lag_store import DAY_S, HOUR_S, TIERS, LagStore, Sample
from headrace.console.history.pace import pace
from headrace.console.views.chart import HEIGHT, WIDTH, line_chart, nice_top
from headrace.console.views.lag_history import catching_up
from headrace.console.views.overview import throughput_charts
from headrace.console.views.words import rate

NOW_S = 1_900_000_800  # on the edge of a slot of each tier


def behind(**topics: int) -> GroupLag:
    return GroupLag({name: TopicLag(lag, 100, 100 + lag) for name, lag in topics.items()})


def lags(store: LagStore, group: str, topics: list[str], tier: int = 0) -> list[int]:
    return [one.lag for one in store.samples(group, topics, tier=TIERS[tier], since_s=0)]


def test_a_slot_keeps_its_last_sample_and_topics_are_summed() -> None:
    store = LagStore()
    for second, orders, bills in ((0, 5, 1), (7, 6, 1), (15, 9, 0)):
        store.note({"billing": behind(orders=orders, bills=bills)}, NOW_S - NOW_S % 15 + second)
    assert lags(store, "billing", ["orders", "bills"]) == [7, 9]
    assert lags(store, "billing", ["bills"]) == [1, 0]
    assert store.topics_of("billing") == ["bills", "orders"]
    assert lags(store, "nobody", ["orders"]) == []


def test_throughput_is_kept_for_an_hour_also_when_the_clock_is_set_back() -> None:
    store = LagStore()
    for second in range(0, 2 * HOUR_S, 15):
        store.note_throughput(second / 10, 1.5, NOW_S + second)
    kept = store.throughput(0)
    assert (kept[-1].at_s, kept[-1].read_per_s) == (NOW_S + 2 * HOUR_S - 15, 1.5)
    assert kept[0].at_s == NOW_S + HOUR_S - 15 and len(kept) == HOUR_S // 15 + 1
    store.note_throughput(3.0, 0.0, NOW_S)
    assert [one.at_s for one in store.throughput(0)] == [NOW_S]
    charts = throughput_charts(kept, NOW_S + 2 * HOUR_S)
    assert charts.written is not None and charts.written.highest == 718
    assert throughput_charts([], NOW_S).read is None


def test_an_hour_is_fine_a_day_is_coarse_and_the_rest_is_forgotten() -> None:
    store = LagStore()
    for second in range(0, 2 * DAY_S, 600):
        store.note({"billing": behind(orders=second)}, NOW_S + second)
    assert len(lags(store, "billing", ["orders"], tier=0)) == HOUR_S // 600 + 1
    assert len(lags(store, "billing", ["orders"], tier=1)) == DAY_S // 600 + 1
    assert len(lags(store, "billing", ["orders"], tier=2)) == 2 * DAY_S // 1800
    store.note({}, NOW_S + 60 * DAY_S)
    assert store.topics_of("billing") == []


def test_where_there_is_no_room_for_all_those_furthest_behind_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_store, "MOST_SERIES", 2)
    store = LagStore()
    left_out = store.note({"a": behind(t=1), "b": behind(t=30), "c": behind(t=20)}, NOW_S)
    assert left_out == 1
    assert [store.topics_of(group) for group in "abc"] == [[], ["t"], ["t"]]


def test_samples_outlive_the_console(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lag.sqlite"
    store = LagStore(path)
    store.note({"billing": behind(orders=5)}, NOW_S)
    store.close()
    assert lags(LagStore(path), "billing", ["orders"]) == [5]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (Sample(60, 0, 700, 700), "it has read everything"),
        (Sample(60, 100, 660, 760), "in 10 s at this pace"),
        (Sample(60, 300, 600, 900), "it falls further behind"),
        (Sample(60, 900, 0, 900), "it does not read"),
        (Sample(0, 5, 0, 5), "not known yet"),
    ],
)
def test_when_a_group_will_have_caught_up(last: Sample, said: str) -> None:
    assert catching_up(pace([Sample(0, 100, 0, 700 if last.end == 760 else 100), last])) == said


def test_a_reset_is_no_reading() -> None:
    found = pace([Sample(0, 0, 500, 500), Sample(60, 500, 0, 500)])
    assert found is not None and found.read_per_s == 0


def test_a_line_is_broken_where_nothing_was_seen() -> None:
    points = [(0, 1), (15, 2), (300, 4), (315, 0)]
    chart = line_chart(points, from_s=0, to_s=600, slot_s=15)
    assert chart is not None
    first, second = chart.lines
    assert first.split()[0] == f"0.0,{HEIGHT * 3 / 4:.1f}"
    assert second.split()[0] == f"{WIDTH / 2:.1f},0.0" and second.endswith(f",{HEIGHT}.0")
    assert [value for _, value in chart.scale] == [4, 2, 0]
    assert chart.rows[0] == (315_000, 0)
    assert line_chart([], from_s=0, to_s=1, slot_s=15) is None


def test_scales_end_at_round_numbers_and_rates_are_short() -> None:
    assert [nice_top(n) for n in (0, 3, 7, 11, 99, 101, 12_345)] == [2, 4, 10, 20, 100, 200, 20_000]
    assert [rate(n) for n in (None, 0, 0.001, 0.5, 12.34, 1234.5)] == [
        "–", "0/s", "3.6/h", "30/min", "12.3/s", "1\u202f234/s",
    ]  # fmt: skip
