"""Made-up visitors: the same seed makes the same events, in the order in which they arrive."""

import json
from collections import Counter
from itertools import islice

from headrace.pipelines.shipped.generator import DAY_MS, generate, moved
from headrace.services.tracking.events import read
from headrace.wire.contract.tracking import KINDS

BEGIN_MS = 1_767_225_600_000  # 2026-01-01


def made(seed=7, late_percent=2.0):
    return list(
        generate(visitors=60, seed=seed, begin_ms=BEGIN_MS, days=3, late_percent=late_percent)
    )


def test_the_same_seed_makes_the_same_events_and_another_one_others():
    assert made() == made()
    assert made() != made(seed=8)


def test_they_come_in_the_order_of_arrival_some_of_them_late():
    events = made()
    arrivals = [one.arrives_ms for one in events]
    assert arrivals == sorted(arrivals)
    late = [one for one in events if one.arrives_ms - one.at_ms > 600_000]
    assert 0 < len(late) < len(events) / 20
    assert not [one for one in made(late_percent=0) if one.arrives_ms - one.at_ms > 1_500]
    assert all(BEGIN_MS <= one.at_ms < BEGIN_MS + 4 * DAY_MS for one in events)


def test_all_kinds_are_there_and_some_visitors_come_back_and_some_buy():
    events = made()
    assert Counter(one.kind for one in events).keys() == KINDS.keys()
    assert len({one.fields["id"] for one in events}) == len(events)
    assert any(one.fields["page"] == "/thanks" for one in events)
    days = {(one.fields["visitor"], one.at_ms // DAY_MS) for one in events}
    assert len({visitor for visitor, _ in days}) == 60
    assert len(days) > 60


def test_a_collector_takes_each_of_them_and_writes_what_the_generator_would_have():
    now_ms = 1_800_000_000_000
    for one in (moved(event, now_ms) for event in islice(made(), 300)):
        batch = read(
            json.dumps(one.posted()).encode(), most=1, received_ms=now_ms, new_id=lambda: "x"
        )
        [event] = batch.good
        assert json.loads(event.value) == json.loads(one.value())
        assert (event.topic, event.key) == (one.topic, one.key)


def test_a_moved_event_keeps_the_age_of_its_visitor():
    first = made()[0]
    later = moved(first, first.arrives_ms + 40 * DAY_MS)
    assert later.at_ms == first.at_ms + 40 * DAY_MS
    assert first.fields["since"] == "2026-01-01"
    assert later.fields["since"] == "2026-02-10"
