"""Which pipelines run in real time, and why others do not; on how many tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipelines import Console, Jdbc, Table, Topic, expect, pipeline
from headrace.pipelines.declaration import Pipeline, Sink, Source
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark.shape import Node
from headrace.pipelines.stream import real_time
from headrace.pipelines.stream.folder import Folder

SCHEMA = "id LONG NOT NULL"
RAW, READ = Topic("in"), Topic("in", schema=SCHEMA)


def between(source: Source, sink: Sink) -> Pipeline:
    return pipeline(source=source, sink=sink, name="p")(lambda rows: rows)


def streaming(*names: str) -> Node:
    """A plan from its top to its source."""
    node = Node("StreamingRelationV2", True)
    for name in reversed(names):
        node = Node(name, True, [node])
    return node


@pytest.mark.parametrize(
    ("source", "sink", "why"),
    [
        (RAW, Table("t"), "it writes a table"),
        (RAW, Jdbc("t", url="jdbc:postgresql://db/shop", key="id"), "it writes a table"),
        (RAW, Console(), "it prints batches"),
        (Table("t"), Topic("out"), "it reads a table"),
        (Topic("in.*", pattern=True), Topic("out"), "it reads topics by a pattern"),
        (
            Topic("in", schema=SCHEMA, expect=(expect("id > 0", then="stop"),)),
            Topic("out"),
            "stops before a batch is written",
        ),
    ],
)
def test_a_pipeline_that_needs_batches_is_refused(source: Source, sink: Sink, why: str) -> None:
    with pytest.raises(PipelineError, match=rf"p cannot run in real time: .*{why}.*without"):
        real_time.refuse(between(source, sink))


def test_from_topic_to_topic_row_by_row_it_runs() -> None:
    kept = Topic("in", schema=SCHEMA, expect=(expect("id > 0"), expect("id > 1", then="drop")))
    for source in (RAW, READ, kept):
        one = between(source, Topic("out"))
        real_time.refuse(one)
        real_time.refuse_plan(one, streaming("Project", "Filter", "EventTimeWatermark"))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (streaming("Project", "Aggregate"), r"keeps state \(Aggregate\)"),
        (streaming("Deduplicate"), r"keeps state \(Deduplicate\)"),
        (streaming("Project", "Generate"), "Generate may make several rows"),
        (streaming("MapInPandas"), "MapInPandas may make several rows"),
        (Node("Union", True, [streaming(), streaming()]), "Union may make several rows"),
    ],
)
def test_a_row_that_is_not_one_records_is_refused(plan: Node, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        real_time.refuse_plan(between(RAW, Topic("out")), plan)


def test_a_checkpoint_stays_with_the_way_it_began_in(tmp_path: Path) -> None:
    for began in (True, False):
        folder = Folder(tmp_path, f"p-{began}")
        folder.state.mkdir(parents=True)
        for _ in range(2):  # the second time it goes on
            real_time.hold_mode(folder, real_time=began)
            folder.checkpoint.mkdir(exist_ok=True)
            (folder.checkpoint / "metadata").touch()
        with pytest.raises(PipelineError, match="would have other ids"):
            real_time.hold_mode(folder, real_time=not began)


def test_what_was_refused_in_real_time_can_still_run_in_batches(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    folder.state.mkdir(parents=True)
    real_time.hold_mode(folder, real_time=True)  # and then its plan was refused
    real_time.hold_mode(folder, real_time=False)
    (folder.checkpoint / "offsets").mkdir(parents=True)
    real_time.hold_mode(folder, real_time=False)


def test_each_partition_has_a_task_that_always_runs() -> None:
    topics = {"in": [0, 1, 2]}
    assert real_time.tasks(between(RAW, Topic("out")), topics) == 3
    assert real_time.tasks(between(READ, Topic("out")), topics) == 4  # and one for dead letters
    assert real_time.master_for("local[2]", 4) == "local[4]"
    assert real_time.master_for("local[8]", 4) == "local[8]"
    assert real_time.master_for("spark://host:7077", 4) == "spark://host:7077"
