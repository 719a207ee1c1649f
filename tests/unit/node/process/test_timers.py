from headrace.node.process.timers import Timers


def test_each_timer_keeps_its_own_period():
    timers, done = Timers(), []
    timers.every(10, lambda: done.append("ten"), now_ms=0)
    timers.every(25, lambda: done.append("twenty-five"), now_ms=0)
    assert timers.next_ms() == 10
    for now_ms in range(0, 51):
        timers.run(now_ms)
    assert done.count("ten") == 5
    assert done.count("twenty-five") == 2


def test_a_loop_that_was_held_up_runs_a_timer_once_not_once_per_period_missed():
    timers, done = Timers(), []
    timers.every(10, lambda: done.append(1), now_ms=0)
    timers.run(1000)
    assert done == [1]
    assert timers.next_ms() == 1010
