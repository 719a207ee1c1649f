from __future__ import annotations

import pytest

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.shipped.topic_to_lake import Lake
from headrace.pipelines.sinks import topic_of_offsets


def test_a_table_belongs_to_one_topic_where_offsets_are_compared() -> None:
    made = Lake(topic="t", upsert=True).pipeline()
    mark, other = topic_of_offsets.mark_of("id-1"), topic_of_offsets.mark_of("id-2")
    streams = ["headrace.t-to-lake.1"]
    assert topic_of_offsets.to_leave(made, "at", mark, streams) == mark
    assert topic_of_offsets.to_leave(made, "at", mark, [*streams, mark]) is None
    with pytest.raises(PipelineError, match="at has rows of another topic, or of t before"):
        topic_of_offsets.to_leave(made, "at", mark, [*streams, mark, other])


def test_a_statement_without_a_mark_has_no_settings() -> None:
    assert topic_of_offsets.settings(None) == {}
    assert set(topic_of_offsets.settings("m").values()) == {"m", "0"}
