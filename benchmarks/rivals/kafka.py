"""Headrace with its delay service, and the same service on Apache Kafka.

On Headrace the service is the child that `headrace start` starts by itself; on Apache Kafka it is
`headrace delay serve`, a process of its own. The broker's settings are those of the other
benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ..brokers import START_TIMEOUT_S
from ..processes import children, memory
from ..results import HEADRACE
from .systems import HOST, PARTITIONS, DelaySystem, go_clients

PROGRAM = str(Path(sys.executable).with_name("headrace"))


@dataclass(slots=True)
class KafkaDelay(DelaySystem):
    """`start` and `create` differ only in who starts the service."""

    _created: bool = False

    @property
    def address(self) -> str:
        return f"{HOST}:{self.target.port}"

    @property
    def with_node(self) -> bool:
        return self.target.name == HEADRACE

    @property
    def store(self) -> Path:
        """Beside the node's data, where `headrace start` puts it; the same on Apache Kafka."""
        return self.target.folder / "data-delay"

    def start(self) -> None:
        broker = self.target.start()
        self.processes["broker"] = broker.process
        if self._created and not self.with_node:
            self.start_service()

    def start_service(self) -> None:
        where = ["--bootstrap", self.address, "--store", str(self.store)]
        self.spawn("service", [PROGRAM, "delay", "serve", *where])

    def create(self) -> None:
        for words in (
            ["topics", "create", self.topic, "--partitions", str(PARTITIONS)],
            ["delay", "enable", self.topic],
        ):
            done = subprocess.run(
                [PROGRAM, *words, "--bootstrap", self.address],
                capture_output=True,
                text=True,
                timeout=60,
            )
            if done.returncode != 0:
                raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        if not self.with_node:
            self.start_service()
        self._created = True
        self.service_pid()

    def service_pid(self) -> int:
        """The process of the service, once there is one."""
        if "service" in self.processes:
            return self.processes["service"].pid
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if (child := self._child()) is not None:
                return child
            time.sleep(0.02)
        raise RuntimeError(f"no service was started:\n{self.target.log_tail()}")

    def _child(self) -> int | None:
        for pid in children(self.processes["broker"].pid):
            with contextlib.suppress(OSError):
                if b"services.delay" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return None

    def kill(self, *names: str) -> None:
        """The node's child too: it would need a moment to notice that its parent is gone."""
        child = self._child() if self.with_node and "broker" in self.processes else None
        super(KafkaDelay, self).kill(*names)
        if child is not None and not names:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def service_mb(self) -> float:
        return memory(self.service_pid()).resident_mb

    def client(self, action: str) -> list[str]:
        topic = f"{self.topic}.delay" if action == "send" else self.topic
        words = [action, f"address={self.address}", f"topic={topic}", f"partitions={PARTITIONS}"]
        return [str(go_clients() / "kafka_delay"), *words]

    def data_folders(self) -> list[Path]:
        return [self.target.data, self.store]
