"""The files of pipelines in their folder on this machine: running process, rates, lag."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream import folder as folders

MOST_SHOWN = 200


@dataclass(slots=True)
class PipelineFacts:
    name: str
    described: dict[str, Any] = field(default_factory=dict)  # source, sink, kind
    process: int | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] = field(default_factory=dict)
    compaction: dict[str, Any] = field(default_factory=dict)
    problem: str = ""  # why its folder cannot be read


def look_at(folder: Path) -> list[PipelineFacts]:
    """The first MOST_SHOWN pipelines; one whose folder cannot be read does not hide the others."""
    return [_facts_or_problem(each) for each in folders.known(folder)[:MOST_SHOWN]]


def _facts_or_problem(folder: folders.Folder) -> PipelineFacts:
    try:
        return facts_of(folder)
    except (PipelineError, OSError, ValueError) as failure:
        return PipelineFacts(folder.name, problem=str(failure))


def facts_of(folder: folders.Folder) -> PipelineFacts:
    return PipelineFacts(
        folder.name,
        folder.described(),
        folder.runner(),
        folder.progress() or {},
        folder.failure() or {},
        folder.compaction(),
    )
