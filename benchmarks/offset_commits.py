"""How many offset commits does a broker answer per second?

Eight groups with a connection and a partition each, five requests in flight, one offset per
request: what consumers send that commit after each message. Each commit is one record of
`__consumer_offsets`; the records there must be as many as the commits that were answered.
Warm-up: the same load until its cost is steady (`warm_up.py`), at most 20 s.
"""

from __future__ import annotations

import time

from . import coordinators, wire
from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import Line, drive, measured
from .results import Better, Goal, Row, Samples
from .warm_up import until_steady

TOPIC = "commits"
GROUPS = [f"commits-{number}" for number in range(8)]
OFFSET = 1_000
WARM_UP_S = 20.0


class CommitLoad:
    """Groups that commit the same offset again and again."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        with wire.connect(broker.port) as connection:
            wire.create_topics_with(connection, [TOPIC], partitions=len(GROUPS))
            coordinators.find(connection, GROUPS, coordinators.GROUP)
            for partition, group in enumerate(GROUPS):
                coordinators.commit_when_ready(connection, group, TOPIC, partition, 1)
            self.written_before = coordinators.offsets_written(connection)
        self.lines = [
            Line.open(
                broker.port,
                coordinators.commit_frame(group, TOPIC, partition, OFFSET),
                coordinators.check_committed,
            )
            for partition, group in enumerate(GROUPS)
        ]
        self.commits = len(GROUPS)  # each line has sent one

    def run_for(self, seconds: float) -> int:
        before = sum(line.answered for line in self.lines)
        for line in self.lines:
            line.left = 1 << 60
        drive(self.lines, time.perf_counter() + seconds)
        done = sum(line.answered for line in self.lines) - before
        self.commits += done
        return done

    def close(self) -> None:
        """Check that each answered commit was written, and that the last one counts."""
        for line in self.lines:
            line.socket.close()
        with wire.connect(self.broker.port) as connection:
            written = coordinators.offsets_written(connection) - self.written_before
            if written != self.commits:
                raise AssertionError(f"{self.commits} commits answered, {written} written")
            for partition, group in enumerate(GROUPS):
                held = coordinators.committed_offsets(connection, [group], TOPIC, partition)
                if held != [OFFSET]:
                    raise AssertionError(f"{group} holds {held}, committed was {OFFSET}")


def measure(run: Run) -> Samples:
    with run.target.start() as broker:
        load = CommitLoad(broker)
        until_steady(broker, load.run_for, limit_s=run.amount(WARM_UP_S, 2.0))
        before = load.commits
        usage = measured(broker, lambda: load.run_for(run.amount(5.0, 2.0)))
        commits = load.commits - before
        load.close()
    run.watch_noise("offset commits", usage)
    return {"rate": [commits / usage.wall_s], "cpu": [usage.broker_s / commits * 1e6]}


BENCHMARK = Benchmark(
    "Offset commits",
    (
        Row("rate", "offset commits, 8 groups", "per second", Goal(Better.MORE, ratio=1.0)),
        Row("cpu", "offset commits, broker CPU", "us each", Goal(Better.LESS, ratio=1.0)),
    ),
    measure,
    rounds=2,
)
