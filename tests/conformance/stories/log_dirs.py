"""DescribeLogDirs 1-5."""

from __future__ import annotations

from headrace.wire.protocol.messages import describe_log_dirs
from headrace.wire.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage


def sizes(stage: Stage) -> None:
    topic = stage.topic("measured", partitions=3)
    stage.produce(topic, build(R(b"x" * 1000)), build(R()))
    stage.produce(topic, build(R(b"x" * 500)), partition=1)
    for version in describe_log_dirs.VERSIONS:

        def ask(line: str, *topics: tuple[str, list[int]], version: int = version) -> None:
            asked = [DescribableLogDirTopic(*one) for one in topics]
            request = DescribeLogDirsRequest(asked)
            line = f"v{version} {line}"
            stage.ask(line, describe_log_dirs, version, request)
            without_disk(stage, line)

        ask("two of three", ("measured", [0, 1]))
        ask("unknown partition", ("measured", [9]))
        ask("unknown topic", ("never-was", [0]))
        ask("none", ("measured", []))
        ask("nothing")
        line = f"v{version} all"
        answer = stage.ask(line, describe_log_dirs, version, DescribeLogDirsRequest(None))
        without_disk(stage, line)
        for folder in stage.answers[line]["results"].values():
            folder["topics"] = "measured" in folder["topics"]
        assert answer is not None


def without_disk(stage: Stage, line: str) -> None:
    """How large and how full the disk is changes from moment to moment."""
    for folder in stage.answers[line]["results"].values():
        for key in ("total_bytes", "usable_bytes"):
            folder[key] = "known" if folder[key] != -1 else -1


STORIES = (sizes,)
