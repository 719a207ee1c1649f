import threading
from functools import partial
from typing import Any

from headrace.node.process.flusher import Flusher
from tests.readable import readable


def wait_for(flusher):
    assert readable([flusher.wake_up], 60)
    flusher.finish()


def test_work_runs_on_its_own_thread_and_is_reported_on_ours():
    flusher = Flusher()
    seen: list[Any] = []
    flusher.submit(
        lambda: seen.append(threading.current_thread().name),
        lambda error: seen.append((threading.current_thread().name, error)),
    )
    wait_for(flusher)
    assert seen == ["headrace-flusher", (threading.current_thread().name, None)]
    flusher.stop()


def test_a_disk_error_is_handed_to_whoever_asked():
    flusher, errors = Flusher(), []

    def fail():
        raise OSError(28, "No space left on device")

    flusher.submit(fail, errors.append)
    wait_for(flusher)
    assert errors[0].errno == 28
    flusher.stop()


def test_stopping_does_everything_first():
    flusher = Flusher()
    done: list[Any] = []
    for number in range(100):
        flusher.submit(partial(done.append, number), done.append)
    flusher.stop()
    assert done[:100] != [] and done.count(None) == 100


def test_a_bug_is_kept_and_nothing_more_is_done():
    flusher = Flusher()
    done: list[Any] = []

    def stumble():
        raise KeyError("bug")

    flusher.submit(stumble, done.append)
    assert readable([flusher.wake_up], 60)
    flusher.submit(lambda: done.append("after"), done.append)
    flusher.stop()
    assert isinstance(flusher.failure, KeyError) and done == []
