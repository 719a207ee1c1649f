"""Nodes of a cluster on one machine: who is started again, and in which order they stop."""

from __future__ import annotations

from headrace.node.process.local_cluster.supervision import (
    CANNOT_START,
    LONG_LIFE_MS,
    LONGEST_REST_MS,
    TIME_TO_STOP_MS,
    UNUSABLE_DATA,
    AllReady,
    Begin,
    Ended,
    Finished,
    Kill,
    Ready,
    SayEnded,
    SayLeftOut,
    Start,
    StopAsked,
    Supervision,
    TellDeath,
    Terminate,
    Tick,
)


def running(nodes: int = 3) -> Supervision:
    """All ready: nodes 1 to 3 are controllers, those above are only brokers."""
    controllers = [[node] for node in range(min(nodes, 3), 0, -1)]
    supervision = Supervision(range(1, nodes + 1), [list(range(4, nodes + 1)), *controllers])
    started = supervision.step(Begin(), 0)
    assert started == [Start(node) for node in range(1, nodes + 1)]
    for node in range(1, nodes + 1):
        said = supervision.step(Ready(node, broker_epoch=node * 10), 0)
        assert said == ([AllReady()] if node == nodes else []), "once, when the last one is there"
    return supervision


def test_a_node_that_died_is_told_of_and_started_again() -> None:
    nodes = running()
    assert nodes.step(Ended(2, -9), 1_000) == [SayEnded(2, -9, 250), TellDeath(2, 20)]
    assert nodes.next_ms() == 1_250
    assert nodes.step(Tick(), 1_249) == []
    assert nodes.step(Tick(), 1_250) == [Start(2)]
    assert nodes.step(Ready(2, 77), 1_300) == [], "the screen is shown once"
    assert TellDeath(2, 77) in nodes.step(Ended(2, -9), 2_000), "the epoch of the life that ended"


def beginning() -> Supervision:
    supervision = Supervision((1, 2, 3), [[3], [2], [1]], controllers=(1, 2, 3))
    supervision.step(Begin(), 0)
    return supervision


def test_two_of_three_serve_without_a_node_whose_folder_is_damaged() -> None:
    nodes = beginning()
    nodes.step(Ready(1, 10), 0)
    assert nodes.step(Ended(2, UNUSABLE_DATA), 1) == [SayLeftOut(2)]
    assert nodes.step(Ready(3, 30), 2) == [AllReady()]
    assert nodes.next_ms() is None, "it is not tried again"
    nodes.step(StopAsked(), 3)
    nodes.step(Ended(3, 0), 4)
    assert nodes.step(Ended(1, 0), 5) == [Finished(None)]


def test_all_are_ready_when_the_last_one_is_left_out() -> None:
    nodes = beginning()
    nodes.step(Ready(1, 10), 0)
    nodes.step(Ready(3, 30), 0)
    assert nodes.step(Ended(2, UNUSABLE_DATA), 1) == [SayLeftOut(2), AllReady()]


def test_a_start_fails_if_most_controllers_have_damaged_folders() -> None:
    nodes = beginning()
    nodes.step(Ended(2, UNUSABLE_DATA), 1)
    assert nodes.step(Ended(3, UNUSABLE_DATA), 2) == [Terminate(1, at_once=True)]
    assert nodes.step(Ended(1, 0), 3) == [Finished(3)]


def test_of_a_life_without_an_epoch_nobody_is_told() -> None:
    nodes = running()
    nodes.step(Ended(2, 1), 0)
    nodes.step(Tick(), 250)
    assert nodes.step(Ended(2, 1), 300) == [SayEnded(2, 1, 500)]


def test_the_rest_doubles_and_a_long_life_forgives() -> None:
    nodes, now, rests = running(), 0, []
    for _ in range(10):
        (said, *_) = nodes.step(Ended(1, 1), now)
        assert isinstance(said, SayEnded) and said.again_in_ms is not None
        rests.append(said.again_in_ms)
        now += said.again_in_ms
        assert nodes.step(Tick(), now) == [Start(1)]
    assert rests[:4] == [250, 500, 1_000, 2_000] and rests[-1] == LONGEST_REST_MS
    (said, *_) = nodes.step(Ended(1, 1), now + LONG_LIFE_MS)
    assert said == SayEnded(1, 1, 250)


def test_brokers_stop_before_controllers_and_controllers_one_at_a_time() -> None:
    nodes = running(5)
    assert nodes.step(StopAsked(), 0) == [Terminate(4), Terminate(5)]
    assert nodes.step(Ended(5, 0), 1) == []
    assert nodes.step(Ended(4, 0), 2) == [Terminate(3)]
    assert nodes.step(Ended(3, 0), 3) == [Terminate(2)]
    assert nodes.step(Ended(2, 0), 4) == [Terminate(1, at_once=True)], "it is the last one"
    assert nodes.step(Ended(1, 0), 5) == [Finished(None)]


def test_a_node_that_rests_is_not_started_for_the_end() -> None:
    nodes = running()
    nodes.step(Ended(3, 1), 0)
    assert nodes.step(StopAsked(), 10) == [Terminate(2)]
    assert nodes.step(Tick(), 10_000) == []


def test_who_does_not_stop_in_time_is_killed() -> None:
    nodes = running()
    nodes.step(StopAsked(), 0)
    assert nodes.next_ms() == TIME_TO_STOP_MS
    assert nodes.step(Tick(), TIME_TO_STOP_MS) == [Kill(3)]
    assert nodes.step(Ended(3, -9), TIME_TO_STOP_MS + 1) == [Terminate(2)], "the others go on"


def test_the_second_request_does_not_wait_and_the_third_kills() -> None:
    nodes = running()
    assert nodes.step(StopAsked(), 0) == [Terminate(3)]
    assert nodes.step(StopAsked(), 1) == [Terminate(1), Terminate(2)]
    assert nodes.step(StopAsked(), 2) == [Kill(1), Kill(2), Kill(3)]
    for node in (1, 2):
        assert nodes.step(Ended(node, -9), 3) == []
    assert nodes.step(Ended(3, -9), 3) == [Finished(None)]


def test_a_node_that_can_never_start_ends_all() -> None:
    nodes = Supervision([1, 2], [[2], [1]])
    nodes.step(Begin(), 0)
    nodes.step(Ready(1, 10), 1)
    assert nodes.step(Ended(2, CANNOT_START), 2) == [Terminate(1, at_once=True)]
    assert nodes.step(Ended(1, 0), 3) == [Finished(2)]


def test_one_that_has_run_is_tried_again_even_if_it_cannot_start() -> None:
    nodes = running()
    nodes.step(Ended(2, -9), 0)
    nodes.step(Tick(), 250)
    assert nodes.step(Ended(2, CANNOT_START), 300) == [SayEnded(2, CANNOT_START, 500)], (
        "its folder may still be locked by the life before"
    )
