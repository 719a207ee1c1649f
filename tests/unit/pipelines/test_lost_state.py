"""What lies beside a checkpoint, when it is damaged or gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder


def a_pipeline() -> Pipeline:
    return pipeline(source=Topic("t"), sink=Table("out"), name="p")(lambda rows: rows)


def test_a_stream_that_has_begun_does_not_become_another_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    assert not folder.has_begun()
    folder.identity(a_pipeline())
    (folder.checkpoint / "offsets").mkdir(parents=True)
    assert folder.has_begun()
    file = folder.state / "identity.json"
    file.write_text('{"id": "cut o')
    with pytest.raises(PipelineError, match=r"identity\.json is damaged"):
        folder.identity(a_pipeline())
    file.unlink()  # a new id, and tables would take the last batch again
    with pytest.raises(PipelineError, match=r"identity\.json is gone"):
        folder.identity(a_pipeline())


def test_numbers_that_are_only_told_may_be_lost(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    folder.keep_progress({"batch": 3})
    folder.keep_spark(1)
    for name in ("progress", "spark"):
        (folder.state / f"{name}.json").write_text("")
    assert folder.progress() is None
    folder.wait_for_old_spark(2)


def test_what_a_backfill_wrote_down_counts_as_begun(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    folder.keep_backfill({"way": "batch", "done": False})
    assert folder.has_begun()
    folder.keep_topic_ids({"t": "one"})
    assert folder.topic_ids() == {"t": "one"}
