"""The counts of a shipper, and their metrics for Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.prometheus_text import Family


@dataclass(slots=True)
class Counters:
    """Since the start."""

    lines: int = 0  # records made of them
    bytes_read: int = 0
    written: int = 0
    blank: int = 0
    bad: int = 0  # records with a problem
    cut: int = 0  # pieces of lines or groups that are too long
    shortened: int = 0  # for a topic that takes less
    rewritten: int = 0
    files_opened: int = 0
    files_closed: int = 0
    files_lost: int = 0
    pipe_lost: int = 0  # records
    not_followed: int = 0
    waits: int = 0  # times that reading stopped because the buffer was full


WORDS = {
    "lines": "Records that were made of lines.",
    "bytes_read": "Bytes read from files.",
    "written": "Records that the cluster has.",
    "blank": "Groups of blank lines, which are not records.",
    "bad": "Records with a problem: not in the format, or not UTF-8.",
    "cut": "Pieces of lines and stack traces that are too long for one record.",
    "shortened": "Records that were shortened because the topic takes less.",
    "rewritten": "Files that were emptied while they were followed.",
    "files_opened": "Files that were opened.",
    "files_closed": "Files that were read to their end and let go.",
    "files_lost": "Files that were gone before they were read to their end.",
    "pipe_lost": "Records of standard input that could not be written before the end.",
    "not_followed": "Files that cannot be followed.",
    "waits": "Times that reading stopped because the buffer was full.",
}


def shipper_families(
    counters: Counters, gauges: Mapping[str, tuple[str, float]]
) -> Iterator[Family]:
    """`gauges` are names with their words and values."""
    for name, explanation in WORDS.items():
        value = getattr(counters, name)
        yield Family(f"headrace_ship_{name}_total", "counter", explanation, [({}, value)])
    for name, (explanation, value) in gauges.items():
        yield Family(f"headrace_ship_{name}", "gauge", explanation, [({}, value)])
