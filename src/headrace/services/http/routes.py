"""Every request that the server knows: method, path, endpoint, and its OpenAPI entry.

The one table of contents: `door.py` finds endpoints by it, `dialects/openapi.py` draws the
document from it, and a test asks for each of them. Pure.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from urllib.parse import unquote

from headrace.services.http.refusal import BAD_REQUEST, NOT_ALLOWED, NOT_FOUND, Refusal

GROUP = "/consumers/{group}"
INSTANCE = "/consumers/{group}/instances/{instance}"
QUEUE = "/queues/{group}"
QUEUES = "Queues"
TOPICS3 = "/v3/clusters/{cluster_id}/topics"
CONSUMERS = "Consumers (v2)"
LONGEST_NAME = 1024


@dataclass(slots=True, frozen=True)
class Route:
    method: str
    path: str
    endpoint: str
    tag: str
    summary: str
    query: tuple[str, ...] = ()
    is_open: bool = False  # answered without a login


ROUTES = (
    Route("GET", "/topics", "topics", "Topics (v2)", "The names of all topics."),
    Route("GET", "/topics/{topic}", "topic", "Topics (v2)", "A topic: settings and partitions."),
    Route("GET", "/topics/{topic}/partitions", "partitions", "Topics (v2)", "Its partitions."),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}",
        "partition",
        "Topics (v2)",
        "One partition: leader and replicas.",
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}/offsets",
        "partition_offsets",
        "Topics (v2)",
        "Its first and its end offset.",
    ),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}/records",
        "partition_records",
        "Records (v2)",
        "Records of a partition from an offset on, without a group.",
        ("offset", "max_records", "max_bytes", "format"),
    ),
    Route("GET", "/brokers", "brokers", "Topics (v2)", "The ids of all brokers."),
    Route(
        "POST",
        "/topics/{topic}",
        "produce",
        "Records (v2)",
        "Write records: embedded JSON or base64, CloudEvents, NDJSON in bulk, or raw bytes.",
        ("key", "delay", "deliver_at", "id", "cron", "cron_zone", "cron_until", "cron_count"),
    ),
    Route(
        "POST",
        "/topics/{topic}/partitions/{partition}",
        "produce",
        "Records (v2)",
        "Write records to one partition.",
    ),
    Route(
        "GET",
        "/topics/{topic}/stream",
        "stream",
        "Streams",
        "Records as server-sent events, as they come; Last-Event-ID continues.",
        ("from", "format", "key", "header", "partition"),
    ),
    Route(
        "DELETE",
        "/topics/{topic}/delayed/{id}",
        "cancel",
        "Delayed messages",
        "Cancel a delayed message by its id and the key that it was sent with.",
        ("key", "key_json", "key_base64", "partition"),
    ),
    Route("POST", GROUP, "create_instance", CONSUMERS, "Create a consumer instance."),
    Route("DELETE", INSTANCE, "delete_instance", CONSUMERS, "Delete it."),
    Route("POST", INSTANCE + "/subscription", "subscribe", CONSUMERS, "Subscribe to topics."),
    Route("GET", INSTANCE + "/subscription", "subscription", CONSUMERS, "What it subscribed to."),
    Route("DELETE", INSTANCE + "/subscription", "unsubscribe", CONSUMERS, "Unsubscribe."),
    Route("POST", INSTANCE + "/assignments", "assign", CONSUMERS, "Assign partitions by hand."),
    Route("GET", INSTANCE + "/assignments", "assignment", CONSUMERS, "What is assigned."),
    Route("POST", INSTANCE + "/positions", "seek", CONSUMERS, "Read on from these offsets."),
    Route(
        "POST",
        INSTANCE + "/positions/beginning",
        "seek_beginning",
        CONSUMERS,
        "Read these partitions from their beginning.",
    ),
    Route(
        "POST",
        INSTANCE + "/positions/end",
        "seek_end",
        CONSUMERS,
        "Read these partitions from their end.",
    ),
    Route(
        "GET",
        INSTANCE + "/records",
        "records",
        CONSUMERS,
        "The next records; waits for the first.",
        ("timeout", "max_bytes", "max_records", "include"),
    ),
    Route("POST", INSTANCE + "/offsets", "commit", CONSUMERS, "Commit.", ("async",)),
    Route("GET", INSTANCE + "/offsets", "committed", CONSUMERS, "What the group has committed."),
    Route(
        "POST",
        QUEUE + "/acquire",
        "acquire",
        QUEUES,
        "Records of a share group, each with a lock and an id; waits for the first.",
    ),
    Route("POST", QUEUE + "/accept", "accept", QUEUES, "These records are done."),
    Route("POST", QUEUE + "/release", "release", QUEUES, "Give records back, to be tried again."),
    Route("POST", QUEUE + "/reject", "reject", QUEUES, "Give records up."),
    Route("POST", QUEUE + "/renew", "renew", QUEUES, "Keep records for another lock duration."),
    Route("GET", "/v3/clusters", "clusters3", "v3", "The cluster."),
    Route("GET", "/v3/clusters/{cluster_id}", "cluster3", "v3", "The cluster by its id."),
    Route("GET", TOPICS3, "topics3", "v3", "All topics."),
    Route("POST", TOPICS3, "create_topic3", "v3", "Create a topic."),
    Route("GET", TOPICS3 + "/{topic}", "topic3", "v3", "A topic."),
    Route("DELETE", TOPICS3 + "/{topic}", "delete_topic3", "v3", "Delete a topic."),
    Route("GET", TOPICS3 + "/{topic}/partitions", "partitions3", "v3", "Its partitions."),
    Route("GET", TOPICS3 + "/{topic}/partitions/{partition}", "partition3", "v3", "One partition."),
    Route(
        "POST",
        TOPICS3 + "/{topic}/records",
        "records3",
        "v3",
        "Write records, streamed: a report for each, in order.",
    ),
    Route("GET", "/", "page", "Server", "This document as a page.", is_open=True),
    Route("GET", "/openapi.json", "openapi", "Server", "This document.", is_open=True),
    Route("GET", "/page.js", "script", "Server", "The page's script.", is_open=True),
    Route("GET", "/page.css", "style", "Server", "The page's style.", is_open=True),
    Route(
        "GET",
        "/health",
        "health",
        "Server",
        "Whether the server is ready; 503 if not.",
        is_open=True,
    ),
    Route("GET", "/metrics", "metrics", "Server", "Numbers for Prometheus.", is_open=True),
)

_Node = dict[str, "_Node | Route"]


def _tree() -> _Node:
    """Segments to segments; a name in braces takes any one. Leaves are methods."""
    root: _Node = {}
    for route in ROUTES:
        node = root
        for part in route.path.strip("/").split("/"):
            below = node.setdefault("{}" if part.startswith("{") else part, {})
            assert isinstance(below, dict)
            node = below
        assert " " + route.method not in node, f"two routes {route.method} {route.path}"
        node[" " + route.method] = route
    return root


_ROOT = _tree()
_NAMES = {
    route: tuple(part[1:-1] for part in route.path.split("/") if part.startswith("{"))
    for route in ROUTES
}


def match(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Returns the route, and the values of its path parameters. `path` is as the request has it."""
    route, given = _matched(method, path)
    return route, dict(given)


@functools.lru_cache(1024)
def _matched(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Kept for paths that come again; a refusal is not kept."""
    if not path.startswith("/"):
        raise Refusal(BAD_REQUEST, "Ask for a path.")
    if path.endswith("/") and len(path) > 1:
        path = path[:-1]  # as in some of the proxies' own examples
    node, given = _ROOT, []
    for part in path[1:].split("/"):
        below = None if part == "{}" else node.get(part)
        if below is None:
            below = node.get("{}")
            given.append(_named(part))
        if not isinstance(below, dict):
            raise Refusal(NOT_FOUND, "No such endpoint. GET / lists them.")
        node = below
    route = node.get(f" {method}")
    if not isinstance(route, Route):
        methods = [name[1:] for name in node if name.startswith(" ")]
        if not methods:
            raise Refusal(NOT_FOUND, "No such endpoint. GET / lists them.")
        raise Refusal(NOT_ALLOWED, f"Use {' or '.join(methods)} there.")
    return route, dict(zip(_NAMES[route], given, strict=True))


def _named(part: str) -> str:
    if "%" in part:
        try:
            part = unquote(part, errors="strict")
        except UnicodeDecodeError:
            raise Refusal(BAD_REQUEST, "The path is not UTF-8.") from None
    elif not part.isascii():
        raise Refusal(BAD_REQUEST, "Bytes beyond ASCII are percent-encoded in a path.")
    if "\0" in part:  # which ends a text in C, so another name would be used
        raise Refusal(BAD_REQUEST, "No name has a zero byte.")
    if not part or len(part) > LONGEST_NAME:
        raise Refusal(NOT_FOUND, "A name in the path is empty or too long.")
    return part
