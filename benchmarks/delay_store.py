"""What the delay service's core costs without a broker: taking, storing, delivering, starting.


    python -m benchmarks.delay_store [PENDING]      (default 1,000,000)

Prints wall and processor time of one process, memory and disk. Records are 100 bytes with a key of
16 and one other header, delays random over a day. No rival: `delay_messages` measures the service.
"""

from __future__ import annotations

import gc
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.progress import IntakeProgress
from headrace.services.delay.timeline.store import Store
from headrace.services.delay.timeline.timeline import Timeline, resume
from headrace.wire.contract.delay_instructions import RecordFields

TOPIC = "orders.delay"
NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 3_600_000
BATCH = 5_000


def records(count: int, first: int = 0) -> Iterator[list[RecordFields]]:
    dice = random.Random(7)
    for start in range(first, first + count, BATCH):
        yield [
            (
                offset,
                NOW_MS,
                b"key-%012d" % offset,
                b"x" * 100,
                [
                    ("trace", b"0123456789abcdef"),
                    ("headrace-delay", b"%d" % dice.randrange(DAY_MS)),
                ],
            )
            for offset in range(start, min(start + BATCH, first + count))
        ]


@contextmanager
def measured(what: str, count: int) -> Iterator[None]:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rate = f"{count / wall:10,.0f}/s wall {count / cpu:10,.0f}/s processor" if count > 1 else ""
    sys.stdout.write(f"{what:34} {wall:8.2f} s {cpu:8.2f} s processor  {rate}\n")


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def begin(store: Store, progress: IntakeProgress, end: int) -> Timeline:
    pending = store.partition(TOPIC, 0, "bench")
    resumed = resume(pending, progress, 0)
    return Timeline(
        TOPIC,
        0,
        progress,
        pending,
        read_from=resumed.read_from,
        ready_at=end,
        limits=DelayLimits(),
    )


def main(count: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="headrace-delay-store-"))
    try:
        with measured("making the records (not counted in)", count):
            for _ in records(count):
                pass
        store = Store(folder / "store")
        timeline = begin(store, IntakeProgress(), 0)
        with measured("accept: take, settle, store", count):
            for batch in records(count):
                timeline.take(batch, NOW_MS)
                if not timeline.wants_more():
                    plan = timeline.plan(NOW_MS)
                    assert plan is not None
                    timeline.committed(plan)
            timeline.plan(NOW_MS)
            plan = timeline.plan(NOW_MS + DelayLimits().overlay_age_ms)
            if plan is not None:
                timeline.committed(plan)
        sys.stdout.write(f"memory {resident_mb():.0f} MB with {store.count_pending():,} pending\n")
        progress = timeline.progress
        store.close()
        size = sum(file.stat().st_size for file in (folder / "store").iterdir())
        sys.stdout.write(f"disk {size / 2**20:.0f} MB\n")

        with measured("start with the store", 1):
            store = Store(folder / "store")
            timeline = begin(store, progress, progress.position)
            assert timeline.ready
            assert timeline.next_wake_ms() is not None
        with measured("deliver: scan, settle, store", count):
            delivered = 0
            while (plan := timeline.plan(NOW_MS + 2 * DAY_MS)) is not None:
                delivered += len(plan.deliveries)
                timeline.committed(plan)
        sys.stdout.write(f"delivered {delivered:,}; memory {resident_mb():.0f} MB\n")
        store.close()

        store = Store(folder / "empty")
        timeline = begin(store, progress, progress.position)
        with measured("rebuild from the intake", count):
            for batch in records(count):
                timeline.take(batch, NOW_MS)
            timeline.skip_to(progress.position)
            assert timeline.ready
        store.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
