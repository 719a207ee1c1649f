"""How the delay service fares, over all its instances: put together, then shown.

Percentiles come from histograms, so they are upper bounds: "<= 15 ms".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from headrace.cli import output
from headrace.client.delay.instances import Instance
from headrace.contract import durations

Bucket = Sequence[int | None]  # upper bound in ms (None: there is none) and how many
PERCENTILES = (50.0, 99.0, 99.9)
NOBODY = "no instance yet"


def put_together(
    registered: Iterable[str], answers: Sequence[tuple[Instance, dict[str, Any]]]
) -> dict[str, Any]:
    """One document over all instances; this is what --json answers."""
    stats = [answer for _, answer in answers]
    topics = {name: _new_topic(name) for name in registered}
    for one in stats:
        for topic in one["topics"]:
            known = topics.setdefault(topic["topic"], _new_topic(topic["topic"]))
            known["pending"] += topic["pending"]
            known["due_next_minute"] += topic["due_next_minute"]
            known["partitions"] += [
                {**partition, "instance": one["instance"]} for partition in topic["partitions"]
            ]
    for topic in topics.values():
        topic["partitions"].sort(key=lambda partition: partition["partition"])
        topic["state"] = _state(topic["partitions"])
    return {
        "topics": [topics[name] for name in sorted(topics)],
        "lateness_ms": percentiles([one["lateness_ms"] for one in stats]),
        "instances": [
            {
                "instance": one["instance"],
                "address": instance.address,
                "up_ms": one["now_ms"] - one["started_at_ms"],
                "partitions": {
                    topic["topic"]: [p["partition"] for p in topic["partitions"]]
                    for topic in one["topics"]
                },
                **{name: one[name] for name in ("delivered", "outcomes", "rejected", "aborted")},
                "problem": one["problem"],
            }
            for instance, one in answers
        ],
    }


def _new_topic(name: str) -> dict[str, Any]:
    return {"topic": name, "pending": 0, "due_next_minute": 0, "partitions": []}


def _state(partitions: Sequence[dict[str, Any]]) -> str:
    if not partitions:
        return NOBODY
    states = {partition["state"] for partition in partitions}
    return states.pop() if len(states) == 1 else ", ".join(sorted(states))


def percentiles(histograms: Sequence[Sequence[Bucket]]) -> dict[str, Any]:
    """Upper bounds of some percentiles of all histograms together; None: beyond the last bound."""
    summed: dict[int | None, int] = {}
    for histogram in histograms:
        for bound, count in histogram:
            summed[bound] = summed.get(bound, 0) + (count or 0)
    total = sum(summed.values())
    found: dict[str, Any] = {"count": total}
    for percentile in PERCENTILES if total else ():
        wanted, seen = total * percentile / 100, 0
        for bound, count in summed.items():
            seen += count
            if seen >= wanted:
                found[f"p{percentile:g}"] = bound
                break
    return found


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
    """`orders 0-2,5; bills 0`."""
    return "; ".join(f"{topic} {ranges(owned)}" for topic, owned in sorted(partitions.items()))


def ranges(numbers: Sequence[int]) -> str:
    """`0-2,5` of 0, 1, 2, 5."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(runs)


def problems(document: dict[str, Any]) -> list[str]:
    """The reasons that hold up deliveries, each once."""
    found = [one["problem"] for one in document["instances"] if one["problem"]]
    for topic in document["topics"]:
        for partition in topic["partitions"]:
            if partition["problem"]:
                found.append(f"{topic['topic']}: {partition['problem']}")
    return list(dict.fromkeys(found))
