"""A network of its own for the nodes of a test, in which each can be cut off.

Every node has a network namespace with one cable to a bridge, on which the clients are too. A cut
takes the cable's far end down: what is sent is lost without a word, in both directions, as when a
switch dies. Needs root, as `ip netns` does; everything is taken away when the block ends.
"""

from __future__ import annotations

import os
import random
import subprocess

# Set aside for tests of networks (RFC 2544), so no machine that counts is there.
SUBNETS = [f"198.18.{number}" for number in range(1, 255)]


class PrivateNetwork:
    def __init__(self, nodes: int) -> None:
        self._mark = f"hr{os.getpid() % 100_000}"
        self._bridge = f"{self._mark}b"
        self._nodes = range(1, nodes + 1)
        self._subnet = random.SystemRandom().choice(SUBNETS)

    def address(self, node: int) -> str:
        return f"{self._subnet}.{node + 1}"

    def prefix(self, node: int) -> list[str]:
        """Words before a command that is to run there."""
        return ["ip", "netns", "exec", self._namespace(node)]

    def cut(self, node: int) -> None:
        ip("link", "set", self._cable(node), "down")

    def restore(self, node: int) -> None:
        ip("link", "set", self._cable(node), "up")

    def _namespace(self, node: int) -> str:
        return f"{self._mark}n{node}"

    def _cable(self, node: int) -> str:
        return f"{self._mark}c{node}"

    def __enter__(self) -> PrivateNetwork:
        try:
            ip("link", "add", self._bridge, "type", "bridge")
            ip("addr", "add", f"{self._subnet}.1/24", "dev", self._bridge)
            ip("link", "set", self._bridge, "up")
            for node in self._nodes:
                self._connect(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self, node: int) -> None:
        namespace, cable, plug = self._namespace(node), self._cable(node), f"{self._mark}p{node}"
        ip("netns", "add", namespace)
        ip("link", "add", cable, "type", "veth", "peer", "name", plug, "netns", namespace)
        ip("link", "set", cable, "master", self._bridge)
        ip("-n", namespace, "addr", "add", f"{self.address(node)}/24", "dev", plug)
        ip("-n", namespace, "link", "set", plug, "up")
        ip("-n", namespace, "link", "set", "lo", "up")
        ip("link", "set", cable, "up")

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            ip("netns", "del", self._namespace(node), must=False)  # the cable goes with it
        ip("link", "del", self._bridge, must=False)


def ip(*words: str, must: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if must and done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
