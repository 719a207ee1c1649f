"""How the delay service fares, over all its instances.

Percentiles come from histograms, so they are upper bounds: "<= 15 ms".
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headrace.cli import output
from headrace.operations.delayed import DelayReport, Lateness, latest_of
from headrace.operations.partition_runs import run_in_digits, runs_of
from headrace.wire.contract import durations

PERCENTILES = (50.0, 99.0, 99.9)
NOBODY = "no instance yet"


def as_document(report: DelayReport) -> dict[str, Any]:
    """This is what --json answers."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "pending": topic.pending,
                "due_next_minute": topic.due_next_minute,
                "partitions": topic.partitions,
                "state": ", ".join(topic.states) or NOBODY,
            }
            for topic in report.topics
        ],
        "lateness_ms": percentiles(report.lateness),
        "instances": [asdict(each) for each in report.instances],
    }


def percentiles(lateness: Lateness) -> dict[str, Any]:
    """Upper bounds of some percentiles; None: beyond the last bound."""
    total = sum(lateness.values())
    found = {f"p{each:g}": latest_of(lateness, each) for each in PERCENTILES} if total else {}
    return {"count": total, **found}


def show(document: dict[str, Any]) -> None:
    output.table(
        ("topic", "pending", "due in 1 min", "partitions", "state"),
        [
            (
                topic["topic"],
                topic["pending"],
                topic["due_next_minute"],
                len(topic["partitions"]),
                topic["state"],
            )
            for topic in document["topics"]
        ],
    )
    output.say("")
    output.say(lateness_text(document["lateness_ms"]))
    output.say("")
    output.table(
        ("instance", "answers at", "up", "delivered", "rejected", "partitions"),
        [
            (
                one["instance"],
                one["address"],
                durations.write(one["up_ms"] // 1000 * 1000),
                one["delivered"],
                one["rejected"],
                owned_text(one["partitions"]),
            )
            for one in document["instances"]
        ],
    )
    for problem in problems(document):
        output.note(problem)


def lateness_text(lateness: dict[str, Any]) -> str:
    if not lateness["count"]:
        return "lateness: nothing was delivered since the instances started"
    bounds = [
        f"{name} {'> 1 min' if bound is None else f'<= {bound} ms'}"
        for name, bound in lateness.items()
        if name != "count"
    ]
    return f"lateness of {output.count(lateness['count'], 'message')}: {', '.join(bounds)}"


def owned_text(partitions: dict[str, list[int]]) -> str:
    """`bills 0; orders 0-2,5`."""
    runs = runs_of((topic, each) for topic, owned in partitions.items() for each in owned)
    return "; ".join(
        f"{topic} {','.join(map(run_in_digits, runs.get(topic, ())))}"
        for topic in sorted(partitions)
    )


def problems(document: dict[str, Any]) -> list[str]:
    """The reasons that hold up deliveries, each once."""
    found = [one["problem"] for one in document["instances"] if one["problem"]]
    for topic in document["topics"]:
        for partition in topic["partitions"]:
            if partition["problem"]:
                found.append(f"{topic['topic']}: {partition['problem']}")
    return list(dict.fromkeys(found))
