"""`python -m benchmarks.profile_broker LOAD`: where Headrace spends its time under a load.

Samples the running broker with py-spy when that is installed (true proportions, the load's time
only); otherwise, or with `--count`, runs it under cProfile, which counts every call but makes calls
look dearer than they are and contains the start. Prints functions by their own time.
"""

from __future__ import annotations

import argparse
import pstats
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import end_to_end, group_balance, offset_commits, transactions, wire
from .brokers import Broker, Target, fresh_target
from .load import FetchLoad, ProduceLoad, measured
from .results import HEADRACE

WARM_UP_S = 1.0
SAMPLES_PER_SECOND = 500


def produce_load(records: int, value_size: int, producers: int) -> Callable[[Broker], Work]:
    def prepare(broker: Broker) -> Work:
        load = ProduceLoad.open(
            broker, "profile", producers=producers, records=records, value_size=value_size
        )
        return lambda seconds: f"{load.run(seconds=seconds):,} requests"

    return prepare


def fetch_load(broker: Broker) -> Work:
    written = ProduceLoad.open(broker, "profile", producers=2, records=16, value_size=1_000)
    written.run(requests=24_000)
    load = FetchLoad.open(written, batch_size=len(wire.batch_of(16, 1_000)), max_bytes=1 << 20)
    return lambda seconds: f"{load.run(seconds) / 1e6:,.0f} MB"


def latency_load(broker: Broker) -> Work:
    with wire.connect(broker.port) as connection:
        wire.create_topics_with(connection, [end_to_end.TOPIC], partitions=1)
    done = 0

    def work(seconds: float) -> str:
        nonlocal done
        records = int(seconds * end_to_end.RATE)
        latencies = sorted(end_to_end.flow(broker.port, records, first_offset=done))
        done += records
        return f"p50 {1000 * latencies[records // 2]:.2f} ms"

    return work


def commit_load(broker: Broker) -> Work:
    load = offset_commits.CommitLoad(broker)
    return lambda seconds: f"{load.run_for(seconds):,} commits"


def transaction_load(broker: Broker) -> Work:
    load = transactions.TransactionLoad(broker)
    return lambda seconds: f"{load.run_for(seconds):,} transactions"


def balance_load(broker: Broker) -> Work:
    """Consumer groups (KIP-848) of 100 members, one after the other."""
    group_balance.prepare(broker)
    groups = 0

    def work(seconds: float) -> str:
        nonlocal groups
        before, deadline = groups, time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            group_balance.balanced_group(broker, group_balance.ConsumerMember, f"group-{groups}")
            groups += 1
        return f"{groups - before:,} groups"

    return work


Work = Callable[[float], str]  # runs for so many seconds, tells what it did
LOADS: dict[str, Callable[[Broker], Work]] = {
    "one-record": produce_load(1, 100, 8),
    "produce-16k": produce_load(16, 1_000, 4),
    "produce-256k": produce_load(258, 1_000, 4),
    "fetch": fetch_load,
    "end-to-end": latency_load,
    "offset-commits": commit_load,
    "transactions": transaction_load,
    "group-balance": balance_load,
}


@dataclass(slots=True)
class Line:
    function: str
    own: float
    with_callees: float
    calls: int | None = None


def sampled(target: Target, prepare: Callable[[Broker], Work], seconds: float) -> Profile:
    """Stacks of the running broker, from py-spy's raw format: `outer;inner count`."""
    stacks = target.folder / "stacks.txt"
    with target.start() as broker:
        work = prepare(broker)
        work(WARM_UP_S)
        spy = subprocess.Popen(
            [
                *(str(py_spy()), "record", "--nonblocking", "--format", "raw"),
                *("--rate", str(SAMPLES_PER_SECOND), "--duration", str(round(seconds))),
                *("--pid", str(broker.process.pid), "--output", str(stacks)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        did, cpu = watched(broker, work, seconds)
        if spy.wait(30) != 0:
            raise RuntimeError(f"py-spy failed: {spy.stderr.read().decode() if spy.stderr else ''}")
    own: Counter[str] = Counter()
    cumulative: Counter[str] = Counter()
    for line in stacks.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [without_line(frame) for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            cumulative[frame] += int(count)
    scale = cpu / max(1, own.total())
    lines = [Line(name, count * scale, cumulative[name] * scale) for name, count in own.items()]
    return did, cpu, lines


def counted(target: Target, prepare: Callable[[Broker], Work], seconds: float) -> Profile:
    """Every call under cProfile, which writes its file when the broker ends cleanly."""
    out = target.folder / "broker.prof"
    target.prefix = (sys.executable, "-m", "cProfile", "-o", str(out))
    with target.start() as broker:
        did, cpu = watched(broker, prepare(broker), seconds)
        broker.process.send_signal(signal.SIGTERM)
        broker.process.wait(30)
    # Not get_stats_profile(): it throws functions of the same name together.
    stats: dict[Function, Counts] = vars(pstats.Stats(str(out)))["stats"]
    lines = [
        Line(f"{name} ({short(file)}:{line})", own, cumulative, calls)
        for (file, line, name), (_primitive, calls, own, cumulative, _callers) in stats.items()
    ]
    return did, cpu, lines


def watched(broker: Broker, work: Work, seconds: float) -> tuple[str, float]:
    done: list[str] = []
    usage = measured(broker, lambda: done.append(work(seconds)))
    return done[0], usage.broker_s


def short(path: str) -> str:
    """A path from the package on, as py-spy shows it."""
    return "headrace/" + path.rpartition("/headrace/")[2] if "/headrace/" in path else path


def without_line(frame: str) -> str:
    """`name (file:12)` as `name (file)`, so that a function is one row."""
    name, colon, _line = frame.rpartition(":")
    return f"{name})" if colon else frame


Function = tuple[str, int, str]  # file, line, name
Counts = tuple[int, int, float, float, object]
Profile = tuple[str, float, list[Line]]  # what was done, broker CPU seconds, functions


def py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile_broker", description=__doc__
    )
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--count", action="store_true", help="cProfile although py-spy is there")
    parser.add_argument("--top", type=int, default=30)
    given = parser.parse_args()
    how = counted if given.count or py_spy() is None else sampled
    with fresh_target(HEADRACE, None, set()) as target:
        if given.load == "group-balance":
            target.settings |= group_balance.SETTINGS
        did, cpu, lines = how(target, LOADS[given.load], given.seconds)
    title = f"{given.load}, {how.__name__}: {did} with {cpu:.2f} s of broker CPU"
    table = Table("function", "own s", "with callees s", "calls", title=title)
    for line in sorted(lines, key=lambda line: -line.own)[: given.top]:
        calls = "" if line.calls is None else f"{line.calls:,}"
        table.add_row(line.function, f"{line.own:.3f}", f"{line.with_callees:.3f}", calls)
    Console().print(table)


if __name__ == "__main__":
    main()
