"""Workers of an app under kill -9: what they are fed, how they are killed, and what is checked.

Every record says how many of its attempts fail. At the end each one is handled at least once or
lies in the dead letters; the effects of a key never skip one: after a crash some are repeated, in
order, but a later one is never seen before an earlier one that it follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client import Admin, ClientError, Producer
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from tests.services.app_worker import GROUP, OUT, TOPIC
from tests.whole_lines import whole_lines

ATTEMPTS = 4


@dataclass
class Fed:
    """What was sent: for each key the failing attempts of its records, by number."""

    keys: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def count(self) -> int:
        return sum(map(len, self.keys.values()))

    def parked(self) -> set[tuple[str, int]]:
        return {
            (k, n) for k, fails in self.keys.items() for n, f in enumerate(fails) if f >= ATTEMPTS
        }

    def handled(self) -> set[tuple[str, int]]:
        return {
            (k, n) for k, fails in self.keys.items() for n, f in enumerate(fails) if f < ATTEMPTS
        }


def feed(bootstrap: str, count: int, keys: int, chance: random.Random, failing: float) -> Fed:
    fed = Fed()
    with Producer(bootstrap) as producer:
        for _ in range(count):
            key = f"k{chance.randrange(keys)}"
            fails = chance.choice([1, 1, 2, 2, 3, 9]) if chance.random() < failing else 0
            record = {"key": key, "number": len(fed.keys[key]), "fails": fails}
            fed.keys[key].append(fails)
            producer.send(TOPIC, json.dumps(record), key=key)
    return fed


class Workers:
    def __init__(self, bootstrap: str, folder: Path, *words: str) -> None:
        self.effects = folder / "effects.txt"
        self._log = folder / "workers.log"
        self._command = [
            *(sys.executable, "-m", "tests.services.app_worker"),
            *("--bootstrap", bootstrap, "--effects", str(self.effects)),
            *words,
        ]
        self.running: list[subprocess.Popen[bytes]] = []
        self._ended = 0  # by themselves

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.running.append(
                subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            )

    def watch_over(self) -> None:
        """One that starts while the broker is away says so and ends; there is always another."""
        ended = [process for process in self.running if process.poll() is not None]
        self.running = [process for process in self.running if process.poll() is None]
        self._ended += len(ended)
        said = self.log_text().count("Unreachable: No Kafka broker answers") if ended else 0
        assert self._ended <= said or not ended, self.log_text()[-6000:]
        if not self.running:
            self.start()

    def kill_one(self, chance: random.Random) -> None:
        process = self.running.pop(chance.randrange(len(self.running)))
        process.kill()
        process.wait()

    def stop_all(self) -> None:
        for process in self.running:
            self.until(lambda one=process: hears_sigterm(one))  # type: ignore[misc]
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(400)
        codes = [process.returncode for process in self.running]
        self.running = []
        assert codes == [0] * len(codes), f"workers ended with {codes}:\n{self.log_text()[-4000:]}"

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def lines(self) -> list[tuple[str, int, int]]:
        """Key, number and process of each effect, in the order they had."""
        found = []
        for line in whole_lines(self.effects):
            key, number, _, pid = line.split()
            found.append((key, int(number), int(pid)))
        return found

    def seen(self) -> list[tuple[str, int]]:
        return [(key, number) for key, number, _ in self.lines()]

    def taken(self) -> int:
        """How many partitions were taken over in all."""
        return sum(
            line.count(f"{TOPIC}-") for line in whole_lines(self._log) if "took over" in line
        )

    def until(self, true: Callable[[], bool], within_s: float = 400.0) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, self.log_text()[-6000:]
            time.sleep(0.05)


def hears_sigterm(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ends in good order by that; one that is still starting would just die of it."""
    if process.poll() is not None:
        return True
    caught = [line for line in _status_of(process.pid) if line.startswith("SigCgt:")]
    return any(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1 for line in caught)


def _status_of(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/status").read_text().splitlines()
    return []  # it has just ended


def members(bootstrap: str) -> int:
    """How many workers share the partitions, all of which somebody has."""
    with contextlib.suppress(ClientError):  # nobody has come yet
        [group] = Admin(bootstrap).groups.describe([GROUP])
        return len(group.members) if group.state == "Stable" else 0
    return 0


def topic_values(bootstrap: str, topic: str) -> list[bytes]:
    reader = RecordReader(ClientSettings({"bootstrap.servers": bootstrap}), topic)
    try:
        return [record.value or b"" for record in reader.records()]
    finally:
        reader.close()


def dead(bootstrap: str) -> list[tuple[str, int]]:
    found = []
    for value in topic_values(bootstrap, f"{TOPIC}.{GROUP}.dead"):
        record = json.loads(value)
        found.append((record["key"], record["number"]))
    return found


def rounds(
    bootstrap: str, workers: Workers, fed: Fed, *, kills: int, every_s: float, most: int, seed: int
) -> None:
    """Kill a worker every few seconds and start others, one to `most` at a time; then let be.

    A kill comes sooner where workers are so quick that nothing would be left for the others.
    """
    chance = random.Random(seed)
    for _ in range(chance.randint(1, most)):
        workers.start()
    for number in range(1, kills + 1):
        moment = time.monotonic() + every_s * (0.5 + chance.random())
        enough = len(fed.handled()) * number // (kills + 2)
        while time.monotonic() < moment and len(set(workers.seen())) < enough:
            time.sleep(0.1)
        workers.kill_one(chance)
        while len(workers.running) < 1 or (len(workers.running) < most and chance.random() < 0.5):
            workers.start()
    assert len(set(workers.seen())) < len(fed.handled()), "all was done before the last kill"
    wait_for_all(bootstrap, workers, fed)
    workers.stop_all()


def wait_for_all(bootstrap: str, workers: Workers, fed: Fed, within_s: float = 400.0) -> None:
    deadline = time.monotonic() + within_s
    parked, handled = fed.parked(), fed.handled()
    while True:
        missing = handled - set(workers.seen())
        unparked = parked - set(dead(bootstrap)) if not missing else parked
        if not missing and not unparked:
            return
        assert time.monotonic() < deadline, (
            f"{len(missing)} not handled, such as {sorted(missing)[:5]}; {len(unparked)} not "
            f"parked, such as {sorted(unparked)[:5]}\n{workers.log_text()[-6000:]}"
        )
        time.sleep(0.5)


def check_order(fed: Fed, seen: list[tuple[str, int]]) -> None:
    """The effects of a key never skip one that is to be handled."""
    assert skips(fed, seen) == []


def skips(fed: Fed, seen: list[tuple[str, int]]) -> list[str]:
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, number in seen:
        by_key[key].append(number)
    found = []
    for key, fails in fed.keys.items():
        place = {n: i for i, n in enumerate(n for n, f in enumerate(fails) if f < ATTEMPTS)}
        at = -1
        for number in by_key[key]:
            if place[number] > at + 1:
                found.append(f"{key}: {number} after the {at}th of {by_key[key]}")
            at = place[number]
    return found


def committed_ends(bootstrap: str) -> bool:
    """Whether the group has committed all of the source and of the retry topic."""
    [group] = Admin(bootstrap).groups.describe([GROUP])
    return all(p.committed == p.end_offset for p in group.progress if p.topic == TOPIC)


__all__ = ["OUT", "TOPIC", "Fed", "Workers", "check_order", "feed", "rounds", "wait_for_all"]
