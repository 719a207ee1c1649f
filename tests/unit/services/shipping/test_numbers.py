"""Numbers of a host: rates of counters, shares of processors, and what endpoints answer."""

from headrace.services.shipping.agent import IN_ONE_RECORD, parted
from headrace.services.shipping.exposition import MOST_SERIES, scraped
from headrace.services.shipping.numbers import Reading, numbers
from headrace.wire.contract.metrics import series


def test_rates_are_over_the_time_between_two_readings():
    before = Reading(
        10.0, counters={"a": 100, "b": 5}, busy={"cpu_percent": 4.0}, total_s=20.0,
        processes={("x", 1): 1.0},
    )  # fmt: skip
    now = Reading(
        15.0, gauges={"g": 7.0}, counters={"a": 150, "b": 1, "new": 3}, busy={"cpu_percent": 9.0},
        total_s=30.0, processes={("x", 1): 2.0, ("x", 2): 50.0},
    )  # fmt: skip
    assert numbers(before, now) == {
        "g": 7.0,
        "a": 10.0,  # b began anew, and new was not there before
        "cpu_percent": 50.0,
        'process_cpu_percent{process="x"}': 20.0,
    }


def test_a_clock_that_stands_still_gives_no_rates():
    one = Reading(10.0, gauges={"g": 1.0}, counters={"a": 1})
    assert numbers(one, one) == {"g": 1.0}


def test_an_endpoint_is_read_line_by_line():
    text = """# HELP up x
up 1
http_requests_total{code="200",path="/a\\"b"} 1.5e3 1700000000000
temperature NaN
broken{a=1} 2
no number
"""
    found = scraped(text, "h:1")
    assert found.numbers == {
        'up{endpoint="h:1"}': 1.0,
        'http_requests_total{code="200",endpoint="h:1",path="/a\\"b"}': 1500.0,
    }
    assert found.left_out == 3


def test_an_endpoint_with_too_many_series_is_cut_and_counted():
    found = scraped("\n".join(f"m{n} 1" for n in range(MOST_SERIES + 7)), "h")
    assert (len(found.numbers), found.left_out) == (MOST_SERIES, 7)


def test_many_numbers_are_several_records():
    found = {f"m{n}": 1.0 for n in range(2 * IN_ONE_RECORD + 1)}
    parts = list(parted(found))
    assert [len(part) for part in parts] == [IN_ONE_RECORD, IN_ONE_RECORD, 1]
    assert list(parted({})) == [{}]


def test_a_series_is_named_as_prometheus_does():
    assert series("a") == "a"
    assert series("a", {"y": 'q"\n', "x": "1"}) == 'a{x="1",y="q\\"\\n"}'


def test_a_label_named_endpoint_is_kept_under_another_name():
    text = 'hits{endpoint="/a"} 1\nhits{endpoint="/b"} 2\nhits{exported_endpoint="/c"} 3\n'
    assert scraped(text, "e:1").numbers == {
        'hits{endpoint="e:1",exported_endpoint="/a"}': 1.0,
        'hits{endpoint="e:1",exported_endpoint="/b"}': 2.0,
        'hits{endpoint="e:1",exported_endpoint="/c"}': 3.0,
    }


def test_only_a_newline_ends_a_line_of_an_endpoint():
    found = scraped('a{b="x\u2028y\x85z"} 1\r\nc 2\r\n', "e")
    assert found.left_out == 0
    assert found.numbers == {'a{b="x\u2028y\x85z",endpoint="e"}': 1.0, 'c{endpoint="e"}': 2.0}


def test_a_line_of_blanks_costs_no_time():
    """A regular expression that tries all ways to share out blanks would take days."""
    for line in ("a" + " " * 2_000_000, "a" + " " * 2_000_000 + "{", "{" * 2_000_000):
        assert scraped(line, "e").left_out == 1
