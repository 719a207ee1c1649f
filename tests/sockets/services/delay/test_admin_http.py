"""The service's window: what it answers, to whom, and that nothing asked can harm it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headrace.services.delay.admin.admin_http import (
    LARGEST_PAGE,
    MOST_ASKERS,
    AdminHttp,
    Cursor,
    Search,
    search_of,
)
from tests.interop.brokers import free_port
from tests.patience import until


class Answers:
    """What a service would say; remembers what it was asked for."""

    def __init__(self) -> None:
        self.ok = True
        self.asked: list[Search] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.answering = threading.Semaphore(0)

    def health(self) -> Mapping[str, Any]:
        return {"ok": self.ok}

    def stats(self) -> Mapping[str, Any]:
        self.answering.release()
        assert self.may_answer.wait(60)
        return {"instance": "jörg"}

    def pending(self, search: Search) -> Mapping[str, Any]:
        self.asked.append(search)
        if search.topic == "broken":
            raise RuntimeError("as if the store were gone")
        return {"rows": [], "next": None}

    def metrics(self) -> str:
        return "headrace_delay_pending 3\n"


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def window(answers: Answers) -> Iterator[AdminHttp]:
    window = AdminHttp(answers, port=0)
    yield window
    window.close()


def ask(
    window: AdminHttp,
    path: str,
    *,
    method: str = "GET",
    host: str | None = None,
    token: str | None = None,
) -> tuple[int, str]:
    asked = http.client.HTTPConnection(window.host, window.port, timeout=60)
    headers = {"Host": host or window.address}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    asked.request(method, path, headers=headers)
    answer = asked.getresponse()
    body = answer.read().decode()
    asked.close()
    return answer.status, body


def test_it_shows_health_statistics_and_metrics(window: AdminHttp, answers: Answers) -> None:
    assert ask(window, "/health") == (200, '{"ok":true}')
    assert ask(window, "/stats") == (200, '{"instance":"jörg"}')
    assert ask(window, "/metrics") == (200, "headrace_delay_pending 3\n")
    answers.ok = False
    assert ask(window, "/health")[0] == 503


def test_a_question_is_understood_in_all_its_parts(window: AdminHttp, answers: Answers) -> None:
    path = "/pending?topic=orders&partition=2&id=a%2Fb&key=k&from=5&to=9&limit=7&values=1"
    assert ask(window, path + "&after=5/orders/2/17")[0] == 200
    assert answers.asked == [
        Search("orders", 2, "a/b", b"k", 5, 9, True, 7, Cursor(5, "orders", 2, 17))
    ]


def test_keys_may_be_any_bytes_and_pages_are_bounded() -> None:
    assert search_of("key_base64=/w==").key == b"\xff"
    assert search_of("limit=999999999").limit == LARGEST_PAGE
    assert search_of("limit=0").limit == 1
    assert search_of("").limit > 1


@pytest.mark.parametrize(
    "question",
    ["limit=x", "limit=-1", "from=1e3", "after=5", "after=a/b/c/d", "key_base64=%", "colour=red"],
)
def test_what_makes_no_sense_is_refused_with_words(window: AdminHttp, question: str) -> None:
    status, body = ask(window, f"/pending?{question}")
    assert status == 400 and json.loads(body)["error"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9095", "127.0.0.1.evil.example"])
def test_a_name_that_leads_here_by_trickery_is_refused(window: AdminHttp, host: str) -> None:
    assert ask(window, "/stats", host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9095", "[::1]:9095"])
def test_loopback_has_many_names(window: AdminHttp, host: str) -> None:
    assert ask(window, "/health", host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(window: AdminHttp, method: str) -> None:
    assert ask(window, "/stats", method=method)[0] == 405


def test_what_is_not_there_says_what_is(window: AdminHttp) -> None:
    status, body = ask(window, "/")
    assert status == 404 and "/pending" in body


def test_a_query_that_fails_is_told_and_the_next_one_is_answered(window: AdminHttp) -> None:
    status, body = ask(window, "/pending?topic=broken")
    assert status == 500 and "store" not in body
    assert ask(window, "/health")[0] == 200


def test_too_many_at_once_are_sent_away(window: AdminHttp, answers: Answers) -> None:
    answers.may_answer.clear()
    threads = [threading.Thread(target=ask, args=(window, "/stats")) for _ in range(MOST_ASKERS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert answers.answering.acquire(timeout=60)
    assert ask(window, "/health")[0] == 503
    answers.may_answer.set()
    for thread in threads:
        thread.join()
    # A place is free a moment after its answer is read.
    until(lambda: ask(window, "/health")[0] != 503)
    assert ask(window, "/health")[0] == 200


def test_a_port_that_is_taken_is_stepped_over(answers: Answers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        window = AdminHttp(answers, port=port)
        try:
            assert window.port != port
            assert ask(window, "/health")[0] == 200
        finally:
            window.close()


def test_places_are_in_the_order_of_due_time_topic_partition_offset() -> None:
    places = [
        Cursor(1, "b", 0, 9),
        Cursor(2, "a", 0, 0),
        Cursor(2, "a", 0, 1),
        Cursor(2, "a", 1, 0),
    ]
    assert sorted(reversed(places)) == places
    assert Cursor.parse(str(places[1])) == places[1]


def test_the_port_of_the_last_run_comes_first(answers: Answers) -> None:
    """The group remembers an instance's first address, whatever port is free at its next start."""
    first = free_port()
    again = AdminHttp(answers, port=0, former=first)
    assert again.port == first
    beside = AdminHttp(answers, port=0, former=first)  # somebody else has it now
    assert beside.port != first
    for window in (again, beside):
        window.close()


def test_with_a_token_messages_are_shown_to_those_who_have_it(answers: Answers) -> None:
    window = AdminHttp(answers, port=0, token_of=lambda address: f"token of {address}")
    try:
        for path in ("/pending", "/stats"):
            status, said = ask(window, path)
            assert status == 401 and "the user of the machine who runs it" in said
            assert ask(window, path, token="guess")[0] == 401
            assert ask(window, path, token=f"token of {window.address}")[0] == 200
        assert ask(window, "/health")[0] == 200
        assert ask(window, "/metrics")[0] == 200
        assert len(answers.asked) == 1
    finally:
        window.close()
