"""Every guide, typed from top to bottom, one after the other, on one node in one folder."""

from __future__ import annotations

import ast
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.node.process.local_cluster.plan import free_ports
from tests.guides.blocks import blocks_of
from tests.guides.walk import Walk
from tests.interop.brokers import HeadraceNode, free_port

ROOT = Path(__file__).resolve().parents[2]
# In the order in which the README leads to them. A guide that is in no list fails a test.
ON_ONE_NODE = (
    "README.md",
    "docs/guide/getting-started.md",
    "docs/guide/tutorial-shop.md",
    "docs/guide/client.md",
    "docs/guide/groups.md",
    "docs/guide/queues.md",
    "docs/guide/transactions.md",
    "docs/guide/compaction.md",
    "docs/guide/testing.md",
    "docs/guide/limits.md",
    "docs/guide/operating.md",
    "docs/guide/install.md",
    "docs/guide/delay.md",
    "docs/guide/delay-from-other-tools.md",
    "docs/guide/apps.md",
    "docs/guide/retries.md",
    "docs/guide/order.md",
    "docs/guide/once-only.md",
    "docs/guide/replay.md",
    "docs/guide/backlog.md",
    "docs/guide/outbox.md",
    "docs/guide/console.md",
    "docs/guide/http.md",
    "docs/guide/triggers.md",
    "docs/guide/coming-from.md",
)
# These begin with a node of their own that asks for passwords.
ON_A_SECURED_NODE = ("docs/guide/security.md", "docs/guide/acls.md")
# Starts a cluster of its own.
ON_THREE_BROKERS = ("docs/guide/cluster.md",)
# One node of its own, which two more join.
FROM_ONE_TO_THREE = ("docs/guide/growing.md",)
# `make pipelines` runs Spark's: tests/pipelines/test_guides.py.
ON_SPARK = (
    "docs/guide/pipelines.md",
    "docs/guide/topic-to-lake.md",
    "docs/guide/web-tracking.md",
    "docs/guide/logs.md",
    "docs/guide/metrics.md",
)
# Nothing to type from top to bottom.
REFERENCE = (
    "docs/guide/command-line.md",
    "docs/guide/delay-contract.md",
    "docs/guide/deploy.md",
    "docs/guide/headers.md",
    "docs/guide/pipelines-sizing.md",
    "docs/guide/when-not.md",
)


def test_every_guide_is_walked() -> None:
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "guide").glob("*.md")}
    clusters = {*ON_THREE_BROKERS, *FROM_ONE_TO_THREE}
    walked = {*ON_ONE_NODE, *ON_A_SECURED_NODE, *clusters, *ON_SPARK}
    assert there | {"README.md"} == walked | {*REFERENCE}


def test_programs_print_words_in_one_piece() -> None:
    """Handlers run on several threads, and `print` writes each of its arguments by itself.

    A walk that waits for "delivered 199" once saw "delivered 89delivered 110", then " 199".
    """
    found = []
    for guide in (*ON_ONE_NODE, *ON_SPARK):
        for block in blocks_of(ROOT / guide, guide):
            if block.note.startswith("file ") and block.language == "python":
                found += [f"{block.place}: {each}" for each in prints_in_pieces(block.body)]
    assert not found


def prints_in_pieces(program: str) -> list[str]:
    """Calls of `print` with several arguments in functions that have a decorator."""
    return [
        ast.unparse(call)
        for function in ast.walk(ast.parse(program))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.decorator_list
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "print"
        and len(call.args) > 1
    ]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("reader")
    node = HeadraceNode(folder / "node")
    node.data = folder / "headrace-data"
    node.settings = {}  # as `headrace start` has them
    with node:
        others = ("localhost:9192", "localhost:8082")
        replacing = {each: f"localhost:{free_port()}" for each in others}
        yield Walk(folder, node=node, replacing=replacing)


@pytest.mark.parametrize("guide", ON_ONE_NODE)
def test_a_reader_can_type_every_command(walk: Walk, guide: str) -> None:
    walk.read(blocks_of(ROOT / guide, guide))


def test_a_reader_can_secure_a_node_and_give_rights_away(walk: Walk, tmp_path: Path) -> None:
    """One terminal: what the first guide starts and exports is there in the second."""
    listen = f"--listen localhost:{free_port()}"
    secured = Walk(
        tmp_path,
        node=walk.node,
        replacing={"headrace security init ": f"headrace security init {listen} "},
    )
    del secured.environment["HEADRACE_BOOTSTRAP"]
    secured.read([block for guide in ON_A_SECURED_NODE for block in blocks_of(ROOT / guide, guide)])


def test_a_reader_can_run_three_brokers(walk: Walk, tmp_path: Path) -> None:
    ports = free_ports_in_a_row(3)
    cluster = Walk(
        tmp_path,
        node=walk.node,
        replacing={
            "headrace start --brokers 3": f"headrace start --brokers 3 --listen localhost:{ports}"
        },
    )
    cluster.environment["HEADRACE_BOOTSTRAP"] = f"localhost:{ports}"
    (guide,) = ON_THREE_BROKERS
    cluster.read(blocks_of(ROOT / guide, guide))


def test_a_reader_can_grow_from_one_node_to_three(walk: Walk, tmp_path: Path) -> None:
    there = [f"localhost:{9000 + port}" for port in (92, 93, 192, 193, 292, 293)]
    ours = [f"localhost:{port}" for port in free_ports(len(there))]
    first = f"headrace start --data one --listen {ours[0]} "
    replacing = {"headrace start --data one ": first, **dict(zip(there, ours, strict=True))}
    growing = Walk(tmp_path, node=walk.node, replacing=replacing)
    growing.environment["HEADRACE_BOOTSTRAP"] = ours[0]
    (guide,) = FROM_ONE_TO_THREE
    growing.read(blocks_of(ROOT / guide, guide))


def free_ports_in_a_row(count: int) -> int:
    """The first of them."""
    while True:
        first = free_port()
        if not any(is_taken(port) for port in range(first + 1, first + count)):
            return first


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
