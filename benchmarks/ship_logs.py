"""The log shipper beside rsyslog and kcat: lines per second, and processor time per GB of files.

    python -m benchmarks.ship_logs [--lines N] [--files N] [--rounds N] [--before FOLDER]

All three read the same files from their beginning and write each line to a topic of its own with
three partitions on one Headrace node, compressed by zstd, acks=all. The clock stops when the topic
has all lines; processor time is the shipper's own, not the node's.

- headrace: `headrace ship logs --once`: each line is parsed (time, level), gets an id, and becomes
  a JSON record; positions are kept.
- before (only with `--before`, the `src` of another checkout): the same by another state of it.
- rsyslog: `imfile` and `omkafka` (Debian's rsyslog-kafka); a line becomes a JSON record with its
  file and host, nothing is parsed; positions are kept at its end.
- kcat: `cat FILES | kcat -P`: the bare line; no positions, no ids.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode

from .processes import describe_machine

PARTITIONS = 3
WITHIN_S = 600.0
LOOK_S = 0.05
LINES_A_SECOND = 1_000  # of all files
LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR")
RSYSLOG = """
global(workDirectory="{work}" maxMessageSize="64k")
module(load="imfile" mode="inotify")
module(load="omkafka")
main_queue(queue.size="100000" queue.dequeueBatchSize="4096")
template(name="record" type="list" option.jsonf="on") {{
  property(outname="host" name="hostname" format="jsonf")
  property(outname="file" name="$!metadata!filename" format="jsonf")
  property(outname="message" name="msg" format="jsonf")
}}
ruleset(name="ship") {{
  action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="record"
         partitions.auto="on" resubmitOnFailure="on"
         confParam=["compression.codec=zstd", "acks=all", "linger.ms=50",
                    "queue.buffering.max.messages=50000"])
}}
input(type="imfile" file="{pattern}" tag="app:" ruleset="ship" freshStartTail="off"
      addMetadata="on")
"""


@dataclass(slots=True)
class Load:
    """Files of lines, as a program writes them."""

    folder: Path
    lines: int
    bytes: int

    @property
    def pattern(self) -> str:
        return str(self.folder / "*.log")


@dataclass(slots=True)
class Shipped:
    seconds: float
    processor_s: float


def written(folder: Path, lines: int, files: int) -> Load:
    chance, size = Random(1), 0
    for which in range(files):
        with (folder / f"app{which:02d}.log").open("w") as file:
            for number in range(which, lines, files):
                at_s = number // LINES_A_SECOND
                hour, minute, second = at_s // 3600 % 24, at_s // 60 % 60, at_s % 60
                size += file.write(
                    f"2026-01-01 {hour:02d}:{minute:02d}:{second:02d},{number % 1000:03d} "
                    f"{chance.choice(LEVELS)} app{which}: order {number} of customer "
                    f"{chance.randrange(10**6)} took {chance.randrange(10**4)} ms\n"
                )
    return Load(folder, lines, size)


def has_all(admin: Admin, topic: str, lines: int, still_runs: Callable[[], bool]) -> float:
    """When the topic had them."""
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        partitions = admin.topics.describe([topic])[0].partitions
        if sum(one.end_offset or 0 for one in partitions) >= lines:
            return time.monotonic()
        assert time.monotonic() < deadline_s, f"{topic} has not got all lines"
        assert still_runs(), f"the shipper to {topic} ended before its time"
        time.sleep(LOOK_S)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """By its id, if it has not ended."""
    try:
        yield
    finally:
        if process.returncode is None and process.poll() is None:
            process.kill()
            process.wait()


def measured(admin: Admin, topic: str, load: Load, command: list[str], *, ends: bool) -> Shipped:
    """`ends`: by itself, after the last line."""
    admin.topics.create(topic, partitions=PARTITIONS)
    began_s = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with ended(process):
        done_s = has_all(admin, topic, load.lines, lambda: ends or process.poll() is None)
        if not ends:
            process.send_signal(signal.SIGTERM)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, -signal.SIGTERM), f"{command[0]} ended with {status}"
    return Shipped(done_s - began_s, used.ru_utime + used.ru_stime)


# ---- the shippers


def by_headrace(at: str, topic: str, load: Load, work: Path) -> list[str]:
    words = [sys.executable, "-m", "headrace", "ship", "logs", load.pattern, "--once"]
    return [*words, "--topic", topic, "--bootstrap", at, "--state", str(work / "state")]


def by_kcat(at: str, topic: str, load: Load, work: Path) -> list[str]:
    options = "-z zstd -X acks=all -X linger.ms=50 -X queue.buffering.max.messages=50000"
    return ["sh", "-c", f"cat {load.pattern} | kcat -P -b {at} -t {topic} {options}"]


def by_rsyslog(at: str, topic: str, load: Load, work: Path) -> list[str]:
    settings = work / "rsyslog.conf"
    settings.write_text(RSYSLOG.format(work=work, bootstrap=at, topic=topic, pattern=load.pattern))
    return ["rsyslogd", "-n", "-f", str(settings), "-i", str(work / "pid")]


def by_another(source: Path, at: str, topic: str, load: Load, work: Path) -> list[str]:
    return ["env", f"PYTHONPATH={source}", *by_headrace(at, topic, load, work)]


Command = Callable[[str, str, Load, Path], list[str]]
WAYS: dict[str, tuple[Command, str, bool]] = {
    "headrace": (by_headrace, sys.executable, True),
    "rsyslog": (by_rsyslog, "rsyslogd", False),
    "kcat": (by_kcat, "kcat", True),
}


def measure(node: HeadraceNode, load: Load, rounds: int, folder: Path) -> None:
    admin = Admin(node.bootstrap)
    found: dict[str, list[Shipped]] = {}
    for number in range(rounds):
        for name, (command, program, ends) in WAYS.items():
            if shutil.which(program) is None:
                print(f"{name} is left out: there is no {program} (Debian's rsyslog-kafka, kcat)")
                continue
            work, topic = folder / f"{name}-{number}", f"{name}-{number}"
            work.mkdir()
            words = command(node.bootstrap, topic, load, work)
            found.setdefault(name, []).append(measured(admin, topic, load, words, ends=ends))
            admin.topics.delete(topic)
    for name, samples in found.items():
        rates = [load.lines / one.seconds for one in samples]
        per_gb = [one.processor_s / load.bytes * 1e9 for one in samples]
        print(
            f"{name:9} {statistics.median(rates):>9,.0f} lines/s ({min(rates):,.0f} to "
            f"{max(rates):,.0f}), {statistics.median(per_gb):>6.1f} s of processor time per GB "
            f"({min(per_gb):.1f} to {max(per_gb):.1f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ship_logs")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    if given.before is not None:
        WAYS["before"] = (partial(by_another, given.before), sys.executable, True)
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "logs").mkdir()
        load = written(place / "logs", given.lines, given.files)
        print(f"{load.lines:,} lines of {load.bytes / load.lines:.0f} bytes in {given.files} files")
        with HeadraceNode(place / "node") as node:
            measure(node, load, given.rounds, place)


if __name__ == "__main__":
    main()
