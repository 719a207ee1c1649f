"""A topic looked at page by page on a real broker: order, holes, transactions, bounds, a tail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import confluent_kafka
import pytest

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, connection
from headrace.client.errors import NoSuchTopic
from headrace.client.lookup.record_pages import Bounds, Browser, Page, Seen
from headrace.client.producer.producer import Producer
from headrace.testing import Broker
from tests.sockets.fills import FILLS

KEPT_FOR_EVER = {"retention.ms": "-1"}  # the records are of 1970


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def at(broker: Broker) -> ClientSettings:
    return connection(bootstrap=broker.bootstrap)


def write(
    at: ClientSettings, topic: str, count: int, *, partitions: int = 1, first_ms: int = 1_000
) -> None:
    """Values 0, 1, 2 ... over the partitions in turn, a millisecond apart."""
    Topics(at).create(topic, partitions=partitions, settings=KEPT_FOR_EVER)
    with Producer(at, settings=FILLS) as producer:
        for number in range(count):
            producer.send(
                topic,
                str(number),
                partition=number % partitions,
                timestamp_ms=first_ms + number,
            )


def everything(seen: Seen) -> bool:
    return True


def data(seen: Seen) -> bool:
    return seen.is_data


def values(page: Page) -> list[int]:
    return [int(seen.record.value or b"-1") for seen in page.found]


def test_pages_onwards_have_every_record_once_in_the_order_of_time(at: ClientSettings) -> None:
    write(at, "onwards", 100, partitions=3)
    with closing(Browser(at, "onwards")) as browser:
        starts = browser.beginnings(browser.partitions)
        found, pages = [], 0
        while True:
            page = browser.onwards(starts, want=30, accepts=everything)
            found += values(page)
            starts, pages = page.next, pages + 1
            if page.at_the_end:
                break
    assert found == list(range(100))
    assert pages == 4


def test_what_is_written_while_a_page_is_read_is_on_the_next_page(
    at: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer that holds it comes after the question for the end; `next` passed over it, and a
    request with an idempotency key was written twice."""
    write(at, "growing", 1)
    with closing(Browser(at, "growing")) as browser:
        end_then = browser.ends([0])
        with Producer(at) as producer:
            producer.send_sync("growing", "1", partition=0, timestamp_ms=2_000)
        with monkeypatch.context() as then:
            then.setattr(browser, "ends", lambda _: end_then)
            page = browser.onwards({0: 0}, want=30)
        assert (values(page), page.next) == ([0], {0: 1})
        assert values(browser.onwards(page.next, want=30)) == [1]


def test_pages_backwards_have_every_record_once_the_newest_first(at: ClientSettings) -> None:
    write(at, "backwards", 100, partitions=3)
    with closing(Browser(at, "backwards")) as browser:
        befores = browser.ends(browser.partitions)
        found: list[int] = []
        while True:
            page = browser.backwards(befores, want=30, accepts=everything)
            found += values(page)
            befores = page.next
            if page.at_the_end:
                break
    assert found == list(range(99, -1, -1))


def test_a_partition_keeps_its_order_whatever_timestamps_say(at: ClientSettings) -> None:
    Topics(at).create("odd-times", partitions=1, settings=KEPT_FOR_EVER)
    with Producer(at, settings=FILLS) as producer:
        for number, stamp in enumerate((50, 10, 40, 20)):
            producer.send("odd-times", str(number), timestamp_ms=1_000 + stamp)
    with closing(Browser(at, "odd-times")) as browser:
        first = browser.onwards({0: 0}, want=2, accepts=everything)
        rest = browser.onwards(first.next, want=9, accepts=everything)
    assert values(first) + values(rest) == [0, 1, 2, 3]


def test_a_time_and_an_offset_are_found(at: ClientSettings) -> None:
    write(at, "by-time", 20, first_ms=5_000)
    with closing(Browser(at, "by-time")) as browser:
        page = browser.onwards(browser.at_time([0], 5_015), want=99, accepts=everything)
        assert values(page) == [15, 16, 17, 18, 19]
        assert browser.at_time([0], 99_999) == {0: 20}
        one = browser.at(0, 7)
        assert one is not None and one.record.value == b"7"
        assert browser.at(0, 20) is None


def test_aborted_records_and_markers_come_marked(broker: Broker, at: ClientSettings) -> None:
    Topics(at).create("transactions", partitions=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "browsed"}
    )
    producer.init_transactions(20)
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce("transactions", str(number), partition=0)
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(20)
    with closing(Browser(at, "transactions")) as browser:
        marked = browser.onwards({0: 0}, want=99, accepts=everything)
        assert [(seen.marker, seen.aborted) for seen in marked.found] == [
            (None, False),
            ("commit", False),
            (None, True),
            ("abort", False),
            (None, False),
            ("commit", False),
        ]
        newest = browser.backwards(browser.ends([0]), want=99, accepts=data)
        assert values(newest) == [2, 0]
        assert newest.at_the_end


def test_a_search_stops_at_its_bounds_says_so_and_goes_on(at: ClientSettings) -> None:
    write(at, "searched", 3_000)
    with closing(Browser(at, "searched")) as browser:
        few = Bounds(records=500)
        starts, found, searches = {0: 0}, [], 0
        while True:
            page = browser.onwards(
                starts, want=10, accepts=lambda seen: seen.record.value == b"2999", bounds=few
            )
            found += values(page)
            starts, searches = page.next, searches + 1
            if page.at_the_end:
                break
    assert found == [2999]
    assert searches >= 1


def test_a_clock_that_has_run_out_ends_a_page_after_no_round(at: ClientSettings) -> None:
    write(at, "no-time", 10)
    with closing(Browser(at, "no-time")) as browser:
        page = browser.onwards({0: 0}, want=10, accepts=everything, bounds=Bounds(seconds=0))
    assert (page.found, page.next, page.at_the_end) == ([], {0: 0}, False)


def test_large_records_are_shown_within_the_bound_of_bytes(at: ClientSettings) -> None:
    Topics(at).create("large", partitions=1)
    with Producer(at, settings=FILLS) as producer:
        for _ in range(40):
            producer.send("large", b"x" * 500_000)
    with closing(Browser(at, "large")) as browser:
        page = browser.backwards(
            browser.ends([0]), want=200, accepts=everything, bounds=Bounds(bytes=12 << 20)
        )
    assert 16 <= len(page.found) < 40
    assert page.found[0].record.offset == 39
    assert not page.at_the_end


def test_a_tail_tells_what_came_and_how_many_it_skipped(at: ClientSettings) -> None:
    write(at, "tailed", 5)
    with closing(Browser(at, "tailed")) as browser:
        since = browser.ends([0])
        assert browser.fresh(since, most=10).found == []
        with Producer(at, settings=FILLS) as producer:
            for number in range(25):
                producer.send("tailed", str(number))
        page = browser.fresh(since, most=10)
        assert (values(page), page.skipped) == (list(range(15, 25)), 15)
        assert browser.fresh(page.next, most=10).found == []


def test_records_that_retention_took_are_passed(at: ClientSettings, broker: Broker) -> None:
    write(at, "trimmed", 10)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([confluent_kafka.TopicPartition("trimmed", 0, 6)]).values():
        future.result(60)
    with closing(Browser(at, "trimmed")) as browser:
        assert values(browser.onwards({0: 0}, want=99, accepts=everything)) == [6, 7, 8, 9]


def test_a_topic_that_is_not_there_is_not_made(at: ClientSettings) -> None:
    with pytest.raises(NoSuchTopic, match="There is no topic nowhere"):
        Browser(at, "nowhere")
    assert "nowhere" not in Topics(at).cluster.topics


class SlowJudge:
    """Takes a second for each record, by the clock that it gives."""

    now_s = 0.0
    asked = 0

    def clock(self) -> float:
        return self.now_s

    def accepts(self, seen: Seen) -> bool:
        self.now_s += 1.0
        self.asked += 1
        return True


def test_a_judge_that_is_slow_does_not_outlast_the_page_and_no_record_is_lost(
    at: ClientSettings,
) -> None:
    write(at, "slowly", 100)
    for way in ("onwards", "backwards"):
        judge = SlowJudge()
        found: list[int] = []
        with closing(Browser(at, "slowly", clock=judge.clock)) as browser:
            place = browser.beginnings([0]) if way == "onwards" else browser.ends([0])
            at_the_end = False
            while not at_the_end:
                before = judge.asked
                page = getattr(browser, way)(
                    place, want=1_000, accepts=judge.accepts, bounds=Bounds(seconds=7)
                )
                assert judge.asked - before <= 8
                found += values(page)
                place, at_the_end = page.next, page.at_the_end
        assert found == (list(range(100)) if way == "onwards" else list(range(99, -1, -1)))


@pytest.mark.integration
def test_batches_that_unpack_to_much_end_the_page_and_the_next_goes_on(
    at: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.lookup.record_pages.UNPACKED_IN_ALL_BYTES", 2_000_000)
    Topics(at).create("bombs", partitions=1)
    squeezed = connection(bootstrap=at.bootstrap)
    with Producer(squeezed, settings={"compression.type": "gzip", "linger.ms": "0"}) as producer:
        for _ in range(10):
            producer.send("bombs", b"\0" * 900_000).result(30)
    with closing(Browser(at, "bombs")) as browser:
        place, sizes = {0: 0}, []
        while sum(sizes) < 10:
            page = browser.onwards(place, want=1_000, accepts=everything)
            sizes.append(len(page.found))
            assert 0 < sizes[-1] <= 4
            place = page.next
    assert sum(sizes) == 10 and page.at_the_end
