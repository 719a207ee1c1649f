"""Works of many clients in one lane: each has its turn, and none waits for another's memory."""

from headrace.node.serving import slices
from headrace.node.serving.slices import MOST_UNDER_WAY, NO_ROOM, STEPS_IN_TURN, FairLane


def work(log, name, steps):
    for _ in range(steps):
        log.append(name)
        yield
    log.append(f"{name} ends")


def run(lane, turns=1000):
    for turn in range(turns):
        if not lane:
            return turn
        lane.run(lambda: True)
    return turns


def test_a_short_work_is_not_behind_twenty_long_ones():
    log, lane = [], FairLane()
    for number in range(MOST_UNDER_WAY - 1):
        lane.add(work(log, f"long {number}", 10_000))
    lane.add(work(log, "short", 3))
    while "short ends" not in log:
        lane.run(lambda: True)
    assert len(log) <= 4 * MOST_UNDER_WAY


def test_each_has_a_few_steps_before_the_next():
    log, lane = [], FairLane()
    lane.add(work(log, "a", 1_000))
    lane.add(work(log, "b", 1_000))
    left = iter(range(4 * STEPS_IN_TURN))
    lane.run(lambda: next(left, None) is None)
    assert abs(log.count("a") - log.count("b")) <= STEPS_IN_TURN


def test_few_are_under_way_and_one_heavy_one():
    begun, lane = [], FairLane()

    def begins(name):
        begun.append(name)
        while True:
            yield

    for number in range(3):
        lane.add(begins(f"heavy {number}"), heavy=True)
    for number in range(50):
        lane.add(begins(number))
    for _ in range(200):
        lane.run(lambda: True)
    assert begun[0] == "heavy 0" and "heavy 1" not in begun
    assert len(begun) == MOST_UNDER_WAY


def test_one_without_room_delays_no_other_and_goes_on_when_there_is_some():
    log, lane = [], FairLane()
    room = False

    def large(name):
        log.append(f"{name} begins")
        while not room:
            yield NO_ROOM
        log.append(f"{name} ends")

    for number in range(2 * MOST_UNDER_WAY):
        lane.add(large(f"large {number}"))
    lane.add(work(log, "small", 3))
    while not lane.waits:
        lane.run(lambda: True)
    assert log[-1] == "small ends" and len(lane) == 2 * MOST_UNDER_WAY
    taken = len(log)
    lane.run(lambda: False)
    assert len(log) == taken and lane.waits
    room = True
    run(lane)
    ends = [line for line in log if line.startswith("large") and line.endswith("ends")]
    assert ends == [f"large {number} ends" for number in range(2 * MOST_UNDER_WAY)]


def test_a_heavy_one_behind_one_without_room_does_not_keep_the_loop_busy():
    """Nothing can be done before a client reads, so a turn may sleep."""
    log, lane = [], FairLane()
    room = False

    def large():
        while not room:
            yield NO_ROOM

    lane.add(large(), heavy=True)
    lane.add(work(log, "behind", 1), heavy=True)
    lane.run(lambda: False)
    assert lane.waits and len(lane) == 2 and not log
    room = True
    run(lane)
    assert log == ["behind", "behind ends"] and not lane


def test_a_bug_ends_its_work_only(caplog):
    log, lane = [], FairLane()

    def broken():
        yield
        raise ValueError("a bug")

    lane.add(broken(), heavy=True)
    lane.add(work(log, "after", 1), heavy=True)
    run(lane)
    assert log == ["after", "after ends"] and "work in slices failed" in caplog.text


def test_a_turn_brings_the_works_on_even_if_it_is_over_at_once():
    log = []
    lane = slices.FairLane()
    lane.add(work(log, "a", 2))
    assert run(lane) == 3
