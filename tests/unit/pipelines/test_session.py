"""What a person sees while Spark works, and the settings that it works with on this machine."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from headrace.cli.applications.pipeline_bar import Bar, Lines
from headrace.pipelines.spark import session
from headrace.pipelines.spark.bar import Seen, Stages, waiting


@dataclass
class Stage:
    numCompletedTasks: int
    numTasks: int


class Tracker:
    """Spark's, with the stages that are under way."""

    def __init__(self) -> None:
        self.active: dict[int, Stage | None] = {}

    def getActiveStageIds(self) -> list[int]:
        return list(self.active)

    def getStageInfo(self, stage: int) -> Stage | None:
        return self.active[stage]


def test_the_bar_is_that_of_the_stages_under_way() -> None:
    tracker = Tracker()
    stages = Stages("history", tracker)
    assert stages.look() == Seen("history")
    tracker.active = {0: Stage(3, 8)}
    assert stages.look() == Seen("history, stage 1", 3, 8)
    tracker.active = {1: Stage(1, 2), 2: Stage(0, 4)}
    assert stages.look() == Seen("history, stage 3", 1, 6)
    tracker.active = {3: None}  # it has just ended
    assert stages.look() == Seen("history")


def test_a_wait_ends_also_when_it_fails() -> None:
    drawn: list[Seen | None] = []
    with pytest.raises(OSError), waiting(drawn.append, "Spark starts"):
        raise OSError
    assert drawn == [Seen("Spark starts"), None]
    with waiting(None, "nobody watches"):
        pass


def test_a_terminal_shows_one_line_that_goes_away() -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=100, color_system=None)
    with Bar(console) as bar:
        bar.draw(Seen("Spark starts"))
        bar.draw(None)
        bar.draw(None)
        before = len(terminal.getvalue())
        bar.draw(Seen("history, stage 1", 3, 8))
        bar.above(lambda text: print(text, file=console.file))("300 records")
    text = terminal.getvalue()
    assert "Spark starts" in text[:before] and "tasks" not in text[:before]
    assert "history, stage 1" in text[before:] and "3 of 8 tasks" in text[before:]
    assert "\x1b[2K300 records\n" in text  # on a line of its own
    assert text.endswith("\x1b[2K")  # the line is cleared


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[3,2]", 3), ("local[*]", 5), ("local[*,2]", 5)],
)
def test_a_local_spark_has_as_many_partitions_as_cores(
    master: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "cores_here", lambda: 5)
    assert session.cores(master) == cores
    made = session.settings(master, {})
    assert made["spark.sql.shuffle.partitions"] == str(cores)
    assert made["spark.driver.host"] == "127.0.0.1"


def test_what_the_person_gives_wins_and_a_cluster_is_left_as_it_is() -> None:
    given = {"spark.sql.shuffle.partitions": "64", "spark.ui.enabled": "true"}
    assert session.settings("local[2]", given).items() >= given.items()
    on_cluster = session.settings("spark://host:7077", {})
    assert session.cores("spark://host:7077") is None
    assert session.cores("local-cluster[2,1,1024]") is None
    assert not on_cluster.keys() & session.LOCAL.keys()
    assert "spark.sql.shuffle.partitions" not in on_cluster


def test_without_a_terminal_there_is_a_line_when_work_begins_and_one_a_minute() -> None:
    lines: list[str] = []
    now = 0.0
    drawn = Lines(lines.append, clock=lambda: now)
    for at, seen in [
        (0, Seen("Spark starts")),
        (1, Seen("Spark starts")),
        (2, None),
        (3, Seen("first batch")),
        (60, Seen("first batch, stage 1", 1, 8)),
        (64, Seen("first batch, stage 2", 3, 8)),
        (65, None),
    ]:
        now = float(at)
        drawn.draw(seen)
    assert lines == ["Spark starts", "first batch", "first batch, stage 2: 3 of 8 tasks"]
