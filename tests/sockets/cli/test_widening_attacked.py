"""A widening, as somebody does it who wants records lost or doubled, or the command to be stuck."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import App
from headrace.app import Message
from headrace.app.names import wide_topic
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.services.backlog.drain import drain
from headrace.services.backlog.parking import Parking
from headrace.services.backlog.widening import CannotWiden, Step, Widening, WidenPlan, WidenStatus
from headrace.services.replay.group_moves import GroupMoves
from headrace.services.replay.topic_copy import Copying
from headrace.services.replay.widenings import IsWidened
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.cli.groups_behind import (
    add,
    app_that_is_behind,
    commit,
    committed,
    delete_before,
    filled,
    handled_until,
)

pytestmark = pytest.mark.integration


def cluster_of(headrace: CommandLine) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": headrace.bootstrap})


def widening_of(headrace: CommandLine, *, few_left: int = 0) -> Widening:
    return Widening(cluster_of(headrace), few_left=few_left, sleep=lambda _: None)


def forwarded(headrace: CommandLine, topic: str, group: str) -> WidenPlan:
    """A widening that was stopped when everything was forwarded."""
    widening = widening_of(headrace)
    plan = widening.plan(topic, group, 2)
    steps = widening.run(plan, by="me")
    for status in steps:
        if status.not_forwarded == 0:
            break
    steps.close()
    return widening.plan(topic, group, 2)


def drained(headrace: CommandLine, topic: str, count: int) -> list[tuple[int, str]]:
    """What the app of this topic handles through the wide one."""
    handled: list[tuple[int, str]] = []
    app = App(headrace.bootstrap, group=f"{topic}-app", delay="off")

    @app.on(topic)
    def handle(value: str, message: Message) -> None:
        handled.append((int(value), message.id))

    wide = drain(app)[topic]
    with app.running():
        until(lambda: len(handled) >= count)
        until(lambda: lag_of(headrace, f"{topic}-app", wide) == 0)
    return handled


def lag_of(headrace: CommandLine, group: str, topic: str) -> int:
    [described] = headrace.json("groups", "describe", group)
    # Markers of transactions are behind the last record.
    return sum(
        max(0, (one["lag"] or 0) - 1) for one in described["partitions"] if one["topic"] == topic
    )


def topics_of(headrace: CommandLine) -> set[str]:
    return set(Topics(cluster_of(headrace)).cluster.topics)


# ---- somebody deletes what is needed


def test_a_wide_topic_that_is_deleted_loses_nothing(headrace: CommandLine) -> None:
    handled = app_that_is_behind(headrace, "cut", done=10, behind=20)
    plan = forwarded(headrace, "cut", "cut-app")
    headrace("topics", "delete", plan.wide_topic, "--yes")
    widening = widening_of(headrace)
    again = widening.plan("cut", "cut-app", 2)
    assert again.is_lost
    with pytest.raises(CannotWiden, match="--abort"):
        next(widening.run(again, by="me"))
    words = ("backlog", "widen", "cut", "--group", "cut-app")
    assert "only --abort" in headrace.notes(*words)
    headrace(*words, "--abort", "--execute")
    assert committed(headrace, "cut-app", "cut") == [5, 5]
    assert handled_until(headrace, "cut", handled, 20) == list(range(10, 30))


def test_a_wide_topic_made_anew_is_not_ours(headrace: CommandLine) -> None:
    app_that_is_behind(headrace, "swap", done=10, behind=20)
    plan = forwarded(headrace, "swap", "swap-app")
    headrace("topics", "delete", plan.wide_topic, "--yes")
    headrace("topics", "create", plan.wide_topic, "--partitions", "4")
    again = widening_of(headrace).plan("swap", "swap-app", 2)
    assert again.is_lost
    widening_of(headrace).abort(again, by="me")
    assert plan.wide_topic in topics_of(headrace)  # somebody else's


def until_everything_is_forwarded(steps: Iterator[WidenStatus], few_left: int) -> None:
    """With `few_left` it stops forwarding, and waits for the group to drain the wide topic."""
    for status in steps:
        if status.not_forwarded == 0 and (not few_left or status.step is Step.DRAINING):
            return


@pytest.mark.parametrize("few_left", [0, 1000])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_wide_topic_that_is_deleted_under_a_running_widening_is_not_taken_for_drained(
    headrace: CommandLine, few_left: int, is_made_anew: bool
) -> None:
    topic = f"gone-{few_left}-{is_made_anew}"
    handled = app_that_is_behind(headrace, topic, done=10, behind=20)
    widening = widening_of(headrace, few_left=few_left)
    plan = widening.plan(topic, f"{topic}-app", 2)
    steps = widening.run(plan, by="me")
    until_everything_is_forwarded(steps, few_left)
    headrace("topics", "delete", plan.wide_topic, "--yes")
    if is_made_anew:
        headrace("topics", "create", plan.wide_topic, "--partitions", "4")
    with pytest.raises(CannotWiden, match="--abort"):
        list(steps)
    assert committed(headrace, f"{topic}-app", topic) == [5, 5]
    headrace("backlog", "widen", topic, "--group", f"{topic}-app", "--abort", "--execute")
    assert handled_until(headrace, topic, handled, 20) == list(range(10, 30))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_widening_that_another_aborts_does_not_say_it_is_done(
    headrace: CommandLine, is_deleted: bool
) -> None:
    topic = f"given-up-{is_deleted}"
    app_that_is_behind(headrace, topic, done=10, behind=20)
    widening = widening_of(headrace, few_left=1000)
    plan = widening.plan(topic, f"{topic}-app", 2)
    steps = widening.run(plan, by="me")
    until_everything_is_forwarded(steps, 1000)
    if is_deleted:
        headrace("topics", "delete", plan.wide_topic, "--yes")
    headrace("backlog", "widen", topic, "--group", f"{topic}-app", "--abort", "--execute")
    with pytest.raises(CannotWiden, match="aborted by another command"):
        list(steps)
    assert committed(headrace, f"{topic}-app", topic) == [5, 5]


def test_what_is_being_widened_is_not_parked_expired_or_replayed_too(
    headrace: CommandLine, tmp_path: Path
) -> None:
    app_that_is_behind(headrace, "busy", done=10, behind=20)
    forwarded(headrace, "busy", "busy-app")
    of_group = ("busy", "--group", "busy-app")
    to = f"sqlite:///{tmp_path / 'parked.db'}"
    for words in (
        ("backlog", "park", *of_group, "--to", to),
        ("backlog", "expire", *of_group, "--older-than", "0ms"),
        ("replay", "group", "busy-app", "--topic", "busy", "--from-offset", "0"),
    ):
        assert "is being widened" in headrace.failure(*words, "--execute")
    assert committed(headrace, "busy-app", "busy") == [5, 5]


def test_a_widening_that_begins_while_records_are_parked_wins(
    headrace: CommandLine, tmp_path: Path
) -> None:
    app_that_is_behind(headrace, "raced", done=10, behind=20)
    parking = Parking(cluster_of(headrace))
    plan = parking.plan("raced", "raced-app")
    steps = parking.park(plan, f"sqlite:///{tmp_path / 'parked.db'}", by="me")
    next(steps)
    forwarded(headrace, "raced", "raced-app")
    with pytest.raises(IsWidened):
        list(steps)
    assert committed(headrace, "raced-app", "raced") == [5, 5]


def test_a_widening_of_a_topic_before_this_one_is_in_nobody_s_way(
    headrace: CommandLine, tmp_path: Path
) -> None:
    app_that_is_behind(headrace, "reborn", done=10, behind=20)
    plan = forwarded(headrace, "reborn", "reborn-app")
    headrace("topics", "delete", plan.wide_topic, "--yes")
    headrace("topics", "delete", "reborn", "--yes")
    filled(headrace, "reborn", 1, 8)
    commit(headrace, "reborn-app", "reborn", 2)
    to = f"sqlite:///{tmp_path / 'parked.db'}"
    headrace("backlog", "park", "reborn", "--group", "reborn-app", "--to", to, "--execute")
    assert committed(headrace, "reborn-app", "reborn") == [8]


def test_a_source_made_anew_can_be_widened_when_the_old_wide_topic_is_gone(
    headrace: CommandLine,
) -> None:
    filled(headrace, "renewed", 1, 20)
    commit(headrace, "renewers", "renewed", 5)
    plan = forwarded(headrace, "renewed", "renewers")
    headrace("topics", "delete", "renewed", "--yes")
    filled(headrace, "renewed", 1, 8)
    commit(headrace, "renewers", "renewed", 2)
    words = ("backlog", "widen", "renewed", "--group", "renewers")
    assert "created again" in headrace.failure(*words)
    headrace("topics", "delete", plan.wide_topic, "--yes")
    headrace(*words)
    fresh = forwarded(headrace, "renewed", "renewers")
    assert fresh.entry is not None and fresh.entry.copied == 6


def test_what_retention_takes_before_it_is_forwarded_is_told(headrace: CommandLine) -> None:
    handled = app_that_is_behind(headrace, "rot", done=10, behind=20)
    widening = widening_of(headrace)
    plan = widening.plan("rot", "rot-app", 2)
    delete_before(headrace, "rot", 8)
    steps = widening.run(plan, by="me")
    status = next(status for status in steps if status.not_forwarded == 0)
    assert (status.forwarded, status.deleted) == (17, 3)
    steps.close()
    assert len(drained(headrace, "rot", 17)) == 17
    assert handled == []


# ---- headers and names


def test_headers_of_replays_keep_no_record_back(headrace: CommandLine) -> None:
    app_that_is_behind(headrace, "marked", done=2, behind=0)
    wide = wide_topic("marked", "marked-app")
    trail = [("headrace-replayed-from", f"{wide}/0/1".encode())] * 6
    add(headrace, "marked", 2, range(2, 8), trail)
    plan = forwarded(headrace, "marked", "marked-app")
    assert plan.entry is not None and (plan.entry.copied, plan.entry.looped) == (6, 0)


def test_groups_with_alike_names_are_different_groups(headrace: CommandLine) -> None:
    filled(headrace, "shared", 1, 20)
    commit(headrace, "a/b", "shared", 5)
    commit(headrace, "a", "shared", 15)
    forwarded(headrace, "shared", "a/b")
    plan = widening_of(headrace).plan("shared", "a", 2)
    assert plan.entry is None and plan.lag == 5
    assert widening_of(headrace).plan("shared", "a/b", 2).entry is not None


def test_long_names_have_a_wide_topic(headrace: CommandLine) -> None:
    topic, group = "t" * 200, "g" * 200
    filled(headrace, topic, 1, 4)
    commit(headrace, group, topic, 1)
    plan = forwarded(headrace, topic, group)
    assert plan.entry is not None and plan.entry.copied == 3 and len(plan.wide_topic) <= 249


def test_a_pattern_does_not_mean_the_wide_topic(headrace: CommandLine) -> None:
    app_that_is_behind(headrace, "meant", done=2, behind=4)
    forwarded(headrace, "meant", "meant-app")
    from headrace.app.retries.topics import is_derived

    assert is_derived(wide_topic("meant", "meant-app"), topics_of(headrace))


# ---- members where they should not be, and kills at the end


def test_members_that_read_the_source_meanwhile_are_told_and_not_moved_back(
    headrace: CommandLine,
) -> None:
    handled = app_that_is_behind(headrace, "both", done=10, behind=20)
    plan = forwarded(headrace, "both", "both-app")
    assert handled_until(headrace, "both", handled, 20) == list(range(10, 30))
    add(headrace, "both", 2, range(30, 40))
    assert handled_until(headrace, "both", handled, 30) == list(range(10, 40))
    assert committed(headrace, "both-app", "both") == [20, 20]
    widening_of(headrace).abort(widening_of(headrace).plan("both", "both-app", 2), by="me")
    assert committed(headrace, "both-app", "both") == [20, 20]
    assert plan.wide_topic not in topics_of(headrace)


@pytest.mark.parametrize("killed_at", ["moved", "deleted", "written"])
def test_a_widening_that_is_killed_at_its_end_is_ended_by_the_same_command(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    topic = f"end-{killed_at}"
    app_that_is_behind(headrace, topic, done=10, behind=20)
    forwarded(headrace, topic, f"{topic}-app")
    handled = drained(headrace, topic, 20)
    widening = widening_of(headrace)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if killed_at == "moved":
            patch.setattr(GroupMoves, "move", killed)
        elif killed_at == "deleted":
            patch.setattr(Topics, "delete", killed)
        else:
            real = Widening._write

            def write(self: Widening, entry: object) -> None:
                if entry.state != "draining":  # type: ignore[attr-defined]
                    raise KeyboardInterrupt
                real(self, entry)  # type: ignore[arg-type]

            patch.setattr(Widening, "_write", write)
        with pytest.raises(KeyboardInterrupt):
            _run(widening, widening.plan(topic, f"{topic}-app", 2))
    again = widening_of(headrace)
    _run(again, again.plan(topic, f"{topic}-app", 2))
    assert sorted(number for number, _ in handled) == list(range(10, 30))
    assert committed(headrace, f"{topic}-app", topic) == [15, 15]
    assert not any(".wide" in name for name in topics_of(headrace) if name.startswith(topic))
    # And a new one may begin.
    add(headrace, topic, 2, range(30, 34))
    assert widening_of(headrace).plan(topic, f"{topic}-app", 2).entry is None


def _run(widening: Widening, plan: WidenPlan) -> None:
    for _ in widening.run(plan, by="me"):
        pass


def test_an_abort_in_the_middle_brings_what_was_not_handled(headrace: CommandLine) -> None:
    handled = app_that_is_behind(headrace, "half", done=10, behind=40)
    forwarded(headrace, "half", "half-app")
    through: list[int] = []
    app = App(headrace.bootstrap, group="half-app", delay="off")

    @app.on("half", concurrency=1)
    def handle(value: str) -> None:
        if len(through) < 15:
            through.append(int(value))
        else:
            raise RuntimeError("enough")

    drain(app)
    with app.running():
        until(lambda: len(through) == 15)
    words = ("backlog", "widen", "half", "--group", "half-app", "--abort", "--execute")
    headrace(*words)
    rest = handled_until(headrace, "half", handled, 25)
    assert set(through) | set(rest) == set(range(10, 50))
    assert "No backlog of half is being widened" in headrace.failure(*words)


def test_a_widening_that_is_killed_before_its_first_record_can_begin_again(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(headrace, "early", 1, 20)
    commit(headrace, "early-readers", "early", 5)
    widening = widening_of(headrace)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Copying, "copy", killed)
        with pytest.raises(KeyboardInterrupt):
            next(widening.run(widening.plan("early", "early-readers", 3), by="me"))
    assert wide_topic("early", "early-readers") in topics_of(headrace)
    plan = forwarded(headrace, "early", "early-readers")
    assert plan.entry is not None and plan.entry.copied == 15


def test_two_widenings_at_once_forward_each_record_once(headrace: CommandLine) -> None:
    filled(headrace, "twin", 1, 20)
    commit(headrace, "twins", "twin", 5)
    one, two = widening_of(headrace), widening_of(headrace)
    plans = one.plan("twin", "twins", 3), two.plan("twin", "twins", 3)
    first, second = one.run(plans[0], by="one"), two.run(plans[1], by="two")
    next(first)
    next(second)
    first.close()
    second.close()
    assert len(headrace("consume", wide_topic("twin", "twins")).splitlines()) == 15
