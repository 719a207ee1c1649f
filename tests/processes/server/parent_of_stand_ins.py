"""A parent of stand-in nodes: FOLDER WAY..., one way for each node; says all to stdout."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.node.process.local_cluster.child import Order
from headrace.node.process.local_cluster.parent import ClusterFailed, Parent
from headrace.node.process.local_cluster.supervision import Supervision
from headrace.node.process.settings.settings import CannotStart

STAND_IN = Path(__file__).with_name("stand_in_node.py")
folder, *ways = sys.argv[1:]
nodes = range(1, len(ways) + 1)
orders = {n: Order(n, f"{folder}/{n}", {"how": ways[n - 1]}) for n in nodes}


def write(text: str) -> None:
    print(text, flush=True)  # noqa: T201


class Folderless:
    """A cluster whose nodes need no folders, unless a file says that theirs cannot be used."""

    orders = orders
    former_min_in_sync = None

    def prepare(self, node: int) -> None:
        if Path(folder, f"{node}.lost").exists():
            raise CannotStart(f"The folder of {node} is lost.")

    def min_in_sync_is_raised(self) -> None:
        raise AssertionError("nobody was asked to")


parent = Parent(
    Supervision(nodes, [[node] for node in reversed(nodes)]),
    Folderless(),
    show=lambda about: write(f"pids {' '.join(str(about[n]['pid']) for n in nodes)}"),
    write=write,
    program=(sys.executable, str(STAND_IN)),
)
try:
    parent.run()
except ClusterFailed as failure:
    write(f"failed: {failure}")
