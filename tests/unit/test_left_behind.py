"""The guard that makes a file red which leaves a task, a loop or a thread behind."""

from __future__ import annotations

import asyncio
import threading

from tests.left_behind import LEFT, LeftBehind, still_alive


def test_a_loop_that_closes_over_a_pending_task_is_named_with_the_test() -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(asyncio.Event().wait(), name="for ever")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    (left,) = LEFT.take()
    assert "test_a_loop_that_closes_over_a_pending_task" in left and "for ever" in left
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_loop_that_is_not_closed_is_named_once() -> None:
    loop = asyncio.new_event_loop()
    (left,) = LEFT.take()
    assert "did not close" in left
    assert not LEFT.take()
    loop.close()


def test_asyncio_run_leaves_nothing() -> None:
    async def story() -> None:
        asyncio.ensure_future(asyncio.Event().wait())  # noqa: RUF006 - ended by asyncio.run
        await asyncio.sleep(0)

    asyncio.run(story())
    assert not LEFT.take()


def test_a_closed_loop_has_no_second_close_to_look_at() -> None:
    watch = LeftBehind()
    loop = asyncio.new_event_loop()
    watch.made(loop)
    loop.close()
    loop.close()
    assert not watch.take()


def test_threads_are_waited_for_and_named_if_they_go_on() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, name="one that goes on")
    alone = threading.Thread(target=ends.wait, name="headrace-commits")
    thread.start()
    alone.start()
    (left,) = still_alive([thread, alone], patience_s=0)
    assert "one that goes on" in left
    ends.set()
    assert not still_alive([thread])
    alone.join()
