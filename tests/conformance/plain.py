"""Answers as plain trees, with what may differ between two clusters replaced by a word.

Ids, addresses and present times are replaced because they are different on any two clusters. Lists
of things that have a name become dictionaries, because their order means nothing.
"""

from __future__ import annotations

import re
import time
from typing import Any

from headrace.wire.protocol.primitives import Message
from tests.conformance.batches import read_batches
from tests.interop.brokers import Node

# The field that names an element, per kind of element; the first that fits is taken.
NAMES = (
    "api_key",
    "node_id",
    "broker_id",
    "replica_id",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "producer_id",
    "feature",
    "topic_name",
    "topic",
    "name",
    "resource_name",
    "log_dir",
    "group_id",
    "user",
    "mechanism",
)
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # ids of group members end with one
TEXTS = {"error_message", "documentation", "batch_index_error_message"}
HOUR_MS = 3_600_000
ZERO_ID = bytes(16)


class Surroundings:
    """What is particular to one broker, learned while a story is played."""

    def __init__(self, node: Node) -> None:
        self.port = node.port
        self.controller_port = getattr(node, "controller_port", None)
        self.data_folder = str(node.data)
        self.topic_ids: dict[bytes, str] = {}
        self.cluster_id: str | None = None


def plain(value: Any, about: Surroundings, name: str = "") -> Any:
    """A message, list or value as a tree of dictionaries, lists and plain values."""
    if isinstance(value, Message):
        return {slot: plain(getattr(value, slot), about, slot) for slot in slots(value)}
    if name == "records" and isinstance(value, bytes | memoryview):
        return plain(read_batches(bytes(value)), about)
    if isinstance(value, dict):
        return {key: plain(element, about, key) for key, element in value.items()}
    if isinstance(value, list):
        return plain_list([plain(element, about) for element in value])
    if isinstance(value, bytes | bytearray | memoryview):
        return plain_id(bytes(value), about) if len(value) == 16 else bytes(value)
    if isinstance(value, str):
        return plain_text(value, about, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return plain_number(value, about, name)
    return value


def slots(message: Message) -> tuple[str, ...]:
    names: tuple[str, ...] = type(message).__slots__
    return names


def plain_list(elements: list[Any]) -> Any:
    for name in NAMES:
        if elements and all(isinstance(one, dict) and name in one for one in elements):
            return keyed(elements, name)
    if elements and all(isinstance(one, dict) and "member_id" in one for one in elements):
        return sorted(elements, key=repr)  # ids of group members end with something random
    return elements


def keyed(elements: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Elements by their names. A topic in two parts is one topic: a client reads both."""
    by_name: dict[str, Any] = {}
    for element in elements:
        # Newer versions name a topic by its id alone.
        unnamed = element[name] in ("", None)
        key = str(element.get("topic_id", '""') if unnamed else element[name])
        key = key.removeprefix("id of ")
        part = parts_of_one(by_name.get(key, {}), element)
        if part is not None:
            by_name[key][part] |= element[part]
            continue
        while key in by_name:
            key += " again"
        by_name[key] = element
    return by_name


def parts_of_one(first: dict[str, Any], second: dict[str, Any]) -> str | None:
    """The field of different partitions in two elements that differ in nothing else."""
    for name in ("partitions", "partition_result"):
        left, right = first.get(name), second.get(name)
        if isinstance(left, dict) and isinstance(right, dict) and not left.keys() & right.keys():
            rest = {name: None}
            return name if first | rest == second | rest else None
    return None


def plain_id(value: bytes, about: Surroundings) -> str:
    if value == ZERO_ID:
        return "no id"
    return f"id of {about.topic_ids[value]}" if value in about.topic_ids else "some id"


def plain_text(value: str, about: Surroundings, name: str) -> str:
    if name in TEXTS:
        return "some text" if value else ""
    if value == about.cluster_id:
        return "the cluster"
    value = UUID.sub("some uuid", value.replace(about.data_folder, "the data folder"))
    value = value.replace(f":{about.controller_port}", ":controller port")
    return value.replace(f":{about.port}", ":port")


def plain_number(value: int, about: Surroundings, name: str) -> int | str:
    if name == "port":
        return {about.port: "port", about.controller_port: "controller port"}.get(value, value)
    if name == "session_id":
        return "a session" if value else 0
    if abs(value - time.time() * 1000) < HOUR_MS:
        return "now"
    return value


def compare(apache: Any, ours: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Where two trees differ: path, Apache's value, our value."""
    if isinstance(apache, dict) and isinstance(ours, dict):
        found = []
        for key in [*apache, *(key for key in ours if key not in apache)]:
            here = f"{path}.{key}" if path else str(key)
            found += compare(apache.get(key, "absent"), ours.get(key, "absent"), here)
        return found
    if isinstance(apache, list) and isinstance(ours, list) and len(apache) == len(ours):
        return [
            difference
            for index, (left, right) in enumerate(zip(apache, ours, strict=True))
            for difference in compare(left, right, f"{path}[{index}]")
        ]
    return [] if apache == ours else [(path, apache, ours)]
