"""A system that takes messages now and delivers them later: what the delay benchmark needs of one.

Each system runs with its ordinary settings on loopback and acknowledges into the page cache. Its
load comes from a compiled client of that system (Go for Kafka and NATS, Java for RocketMQ), in
processes of their own: one sends, one receives and writes four numbers per message, `Arrivals`
reads them. All clocks are the one of this machine.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.tools import CACHE, run, tool

from ..brokers import HOST, STOP_TIMEOUT_S, Target, _alive
from ..processes import children, memory, processor_seconds

HERE = Path(__file__).parent
RIVALS = CACHE / "rivals"
PARTITIONS = 4
VALUE_SIZE = 100
ROW_BYTES = 32
SEND_TIMEOUT_S = 1800.0
# A system is at rest when a second costs it less than this; the JVMs never get to nothing.
QUIET_SHARE = 0.25


@dataclass(slots=True)
class Load:
    """Messages to send: how many, how fast, due when. Epoch milliseconds."""

    count: int
    first: int = 0  # their numbers begin here
    rate: int = 0  # per second; 0: as fast as it goes
    due_from: int = 0  # 0: due `delay` after sending
    span: int = 0  # due times are spread over so many milliseconds, in shuffled order
    delay: int = 0

    def words(self) -> list[str]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return [f"{name}={value}" for name, value in fields.items()] + [f"size={VALUE_SIZE}"]


@dataclass(slots=True)
class Arrivals:
    """What a receiver saw: four columns of equal length, in the order of arrival."""

    numbers: array[int]
    due: array[int]
    stored: array[int]
    received: array[int]

    @classmethod
    def read(cls, path: Path, first: int = 0) -> Arrivals:
        """Rows of messages whose number is at least `first`."""
        columns: array[int] = array("q")
        data = path.read_bytes()
        columns.frombytes(data[: len(data) // ROW_BYTES * ROW_BYTES])
        columns.byteswap()
        numbers = columns[0::4]
        if any(number < first for number in numbers):
            kept = [i for i, number in enumerate(numbers) if number >= first]
            return cls(*(array("q", (columns[4 * i + at] for i in kept)) for at in range(4)))
        return cls(numbers, columns[1::4], columns[2::4], columns[3::4])

    def lateness(self, due_after: int = 0) -> list[int]:
        """Sorted, in milliseconds, of the messages due after a moment."""
        pairs = zip(self.due, self.received, strict=True)
        return sorted(received - due for due, received in pairs if due >= due_after)

    def check(self, what: str, expected: int) -> None:
        """None lost, none doubled, none early; a system that fails this has no numbers."""
        distinct = len(set(self.numbers))
        early = sum(s < d for s, d in zip(self.stored, self.due, strict=True))
        if distinct != expected or len(self.numbers) != distinct or early:
            raise AssertionError(
                f"{what}: {expected} sent, {len(self.numbers)} arrived, {distinct} of them"
                f" distinct, {early} early"
            )


@dataclass(slots=True)
class Receiver:
    """A running receiver and its file."""

    process: subprocess.Popen[bytes]
    path: Path

    def count(self) -> int:
        return self.path.stat().st_size // ROW_BYTES if self.path.exists() else 0

    def wait_for(self, count: int, within_s: float) -> bool:
        """Whether so many rows came; half a second more shows what came twice."""
        deadline = time.monotonic() + within_s
        while self.count() < count and time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError("the receiver ended")
            time.sleep(0.05)
        time.sleep(0.5)
        return self.count() >= count

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        _alive.discard(self.process)


@dataclass(slots=True)
class DelaySystem(ABC):
    target: Target  # name, folder, cores; each system has its own idea of its port
    topic: str = "orders"
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @abstractmethod
    def start(self) -> None:
        """Start on what the folder holds, without waiting for more than an open door."""

    @abstractmethod
    def create(self) -> None:
        """Make the topic with delayed messages; the system runs."""

    @abstractmethod
    def client(self, action: str) -> list[str]:
        """The command of the sender or the receiver, without the words of the load."""

    @abstractmethod
    def data_folders(self) -> list[Path]: ...

    # ---- what is the same for all ---------------------------------------------------------------

    def spawn(self, name: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        own_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.target.cores or own_cores)
        try:
            with (self.target.folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | environment,
                )
        finally:
            os.sched_setaffinity(0, own_cores)
        _alive.add(process)
        self.processes[name] = process
        return process

    def send(self, load: Load) -> tuple[int, float]:
        """Send everything and wait for the acknowledgements: how many, in how many seconds."""
        done = subprocess.run(
            [*self.client("send"), *load.words()], capture_output=True, timeout=SEND_TIMEOUT_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.target.name}: the sender failed:\n{done.stderr[-2000:]!r}")
        answer = json.loads(done.stdout.splitlines()[-1])
        if answer["accepted"] != load.count:
            raise AssertionError(f"{self.target.name}: {answer} of {load.count}")
        return answer["accepted"], answer["seconds"]

    def send_in_background(self, load: Load) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*self.client("send"), *load.words()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _alive.add(process)
        return process

    @contextlib.contextmanager
    def receiving(self, name: str) -> Iterator[Receiver]:
        """A receiver of what is delivered from now on, ready; RocketMQ's also gets what was."""
        path = self.target.folder / f"{name}.rows"
        words = [*self.client("receive"), f"out={path}", f"first={time.time_ns() // 1_000_000}"]
        with (self.target.folder / "receiver.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
        _alive.add(process)
        receiver = Receiver(process, path)
        try:
            assert process.stdout is not None
            while (line := process.stdout.readline()) != b"ready\n":
                if not line:
                    told = (self.target.folder / "receiver.log").read_text(errors="replace")
                    raise RuntimeError(
                        f"the receiver of {self.target.name} did not start:\n{told[-2000:]}"
                    )
            yield receiver
        finally:
            receiver.end()

    def resident_mb(self, *names: str) -> float:
        """Of all its processes, or of the named ones; children included."""
        chosen = [self.processes[name].pid for name in names or self.processes]
        return sum(memory(pid).resident_mb for root in chosen for pid in tree(root))

    def anonymous_mb(self) -> float:
        """Memory that is not backed by a file: RocketMQ maps its files into its process."""
        roots = [process.pid for process in self.processes.values()]
        return sum(anonymous_mb(pid) for root in roots for pid in tree(root))

    def disk_mb(self) -> float:
        """Blocks in use: files that are reserved and empty do not count."""
        files = (
            path
            for folder in self.data_folders()
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        )
        return sum(path.stat().st_blocks for path in files) * 512 / 1e6

    def wait_until_quiet(self, within_s: float = 60.0) -> None:
        """Until what was accepted is digested: the processes cost next to nothing."""
        deadline = time.monotonic() + within_s
        before = self.processor_seconds()
        while time.monotonic() < deadline:
            time.sleep(1.0)
            now = self.processor_seconds()
            if now - before < QUIET_SHARE:
                return
            before = now

    def processor_seconds(self) -> float:
        return sum(processor_seconds(process.pid) for process in self.processes.values())

    def kill(self, *names: str) -> None:
        """kill -9 of all, or of the named processes."""
        for name in list(names or self.processes):
            process = self.processes.pop(name)
            process.kill()
            process.wait()
            _alive.discard(process)

    def stop(self) -> None:
        for name in reversed(list(self.processes)):
            process = self.processes.pop(name)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _alive.discard(process)


def tree(pid: int) -> list[int]:
    """A process and its living descendants."""
    return [pid, *(found for child in children(pid) for found in tree(child))]


def anonymous_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


@functools.cache
def go_clients() -> Path:
    """The folder with the two Go programs; Go rebuilds only what changed."""
    RIVALS.mkdir(parents=True, exist_ok=True)
    programs = ["./kafka_delay", "./nats_delay"]
    run([tool("go"), "build", "-o", f"{RIVALS}/", *programs], cwd=HERE / "go", timeout_s=900)
    return RIVALS


__all__ = ["HOST", "PARTITIONS", "Arrivals", "DelaySystem", "Load", "Receiver", "go_clients"]
