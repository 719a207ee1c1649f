"""Questions of one page share the cluster's metadata; nobody gets what is older than their page."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headrace.console.access.shared_metadata import (
    BELIEVED_S,
    TRUSTED_S,
    SharedMetadata,
    SharingAdmin,
)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def counting() -> tuple[list[int], Callable[[], int]]:
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    return asked, ask


def test_questions_of_one_page_ask_once_and_the_next_page_asks_again() -> None:
    clock = Clock()
    shared, (asked, ask) = SharedMetadata(clock), counting()
    for _ in range(3):
        assert shared.get(ask, since_s=100, timeout_s=1) == 1
    clock.now_s = 100.2
    assert shared.get(ask, since_s=100.1, timeout_s=1) == 2
    assert shared.get(ask, since_s=100, timeout_s=1) == 2
    assert len(asked) == 2


def test_who_looks_again_and_again_sees_what_is_new() -> None:
    clock = Clock()
    shared, (_, ask) = SharedMetadata(clock), counting()
    assert shared.get(ask, since_s=100, timeout_s=1) == 1
    clock.now_s += BELIEVED_S * 1.01
    assert shared.get(ask, since_s=100, timeout_s=1) == 2


def test_an_answer_under_way_is_waited_for_and_a_failure_is_told_to_all() -> None:
    shared, begun, go_on = SharedMetadata(), threading.Event(), threading.Event()
    failures: list[str] = []

    def ask() -> int:
        begun.set()
        assert go_on.wait(60)
        raise ValueError("nobody answers")

    def want() -> None:
        with pytest.raises(ValueError, match="nobody answers"):
            shared.get(ask, since_s=0, timeout_s=60)
        failures.append("told")

    threads = [threading.Thread(target=want) for _ in range(4)]
    threads[0].start()
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert failures == ["told"] * 4
    assert shared.get(lambda: 7, since_s=0, timeout_s=1) == 7, "a failure is not kept"


def test_a_change_by_this_client_is_seen_at_once() -> None:
    class Admin:
        topics = 1

        def list_topics(self, topic: str | None = None, timeout: float = -1) -> int:
            return self.topics if topic is None else -1

        def create_topics(self) -> None:
            self.topics += 1

    admin = SharingAdmin(Admin(), SharedMetadata(), since_s=0)
    assert admin.list_topics(timeout=1) == 1
    admin.create_topics()
    assert admin.list_topics(timeout=1) == 2
    assert admin.list_topics("one", timeout=1) == -1


def test_an_old_answer_does_not_show_that_a_broker_answers_now() -> None:
    class Admin:
        is_up = True

        def list_topics(self, topic: str | None = None, timeout: float = -1) -> str:
            if not self.is_up:
                raise ValueError("no broker answers")
            return "metadata"

    clock, broker = Clock(), Admin()
    shared = SharedMetadata(clock)
    admin = SharingAdmin(broker, shared, since_s=0)
    assert shared.answers is None
    admin.list_topics(timeout=1)
    assert shared.answers is True
    clock.now_s += TRUSTED_S * 1.01
    assert shared.answers is None, "a page that asks nothing must not show a green dot"
    broker.is_up = False
    with pytest.raises(ValueError, match="no broker answers"):
        admin.list_topics(timeout=1)
    assert shared.answers is False
