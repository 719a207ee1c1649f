"""NATS 2.15 with JetStream: scheduled messages in a stream of files.

Each message has a subject of its own, as a schedule is named by its subject. `sync_interval` stays
at its default of two minutes, so an acknowledged message is in the page cache.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.interop.tools import tool

from ..brokers import START_TIMEOUT_S
from .systems import HOST, RIVALS, DelaySystem, go_clients

NATS_VERSION = "v2.15.2"


@functools.cache
def nats_server() -> Path:
    """The server's binary; Go builds it the first time."""
    folder = RIVALS / f"nats-{NATS_VERSION}"
    program = folder / "nats-server"
    if not program.exists():
        package = f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"
        subprocess.run(
            [tool("go"), "install", package],
            env=os.environ | {"GOBIN": str(folder)},
            check=True,
            timeout=900,
        )
    return program


@dataclass(slots=True)
class Nats(DelaySystem):
    def start(self) -> None:
        port = str(self.target.port)
        self.spawn(
            "nats",
            [str(nats_server()), "-js", "-sd", str(self.target.data), "-a", HOST, "-p", port],
        )
        wait_for_port(self, "nats", self.target.port)

    def create(self) -> None:
        done = subprocess.run(self.client("create"), capture_output=True, text=True, timeout=60)
        if done.returncode != 0 or '"error"' in done.stdout:
            raise RuntimeError(f"no stream: {done.stdout}{done.stderr}")

    def client(self, action: str) -> list[str]:
        address = f"nats://{HOST}:{self.target.port}"
        return [str(go_clients() / "nats_delay"), action, f"address={address}"]

    def data_folders(self) -> list[Path]:
        return [self.target.data]


def wait_for_port(system: DelaySystem, name: str, port: int) -> None:
    """Until a process of the system listens; if it ended or takes too long, its log says why."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError as refused:
            if time.monotonic() > deadline or system.processes[name].poll() is not None:
                log = (system.target.folder / f"{name}.log").read_text(errors="replace")
                raise RuntimeError(f"{name} did not start:\n{log[-3000:]}") from refused
            time.sleep(0.01)
