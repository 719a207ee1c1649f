"""The metrics agent: reads this machine and Prometheus endpoints every so often, and writes
samples.

Never waits for the cluster: samples that do not fit into the bounded buffer are dropped, counted
and reported. A sample that could not be written for LONGEST_WAIT_MS is dropped and counted too.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from headrace.client.connection import ClientSettings
from headrace.client.errors import BufferFull, ClientError
from headrace.client.faults import fault_of
from headrace.client.producer.producer import Producer
from headrace.services.shipping import host
from headrace.services.shipping.exposition import scraped
from headrace.services.shipping.numbers import Reading, numbers
from headrace.services.shipping.records import encoded
from headrace.services.shipping.scraper import ScrapeFailed, Scraper, without_secrets
from headrace.wire.contract.headers import MESSAGE_ID
from headrace.wire.contract.metrics import series
from headrace.wire.contract.tracking import time_text

LONGEST_WAIT_MS = 10 * 60_000
IN_ONE_RECORD = 200
BUFFER_MESSAGES, BUFFER_KIB = 10_000, 16 * 1024
TELL_EVERY_S = 10.0


@dataclass(slots=True, kw_only=True)
class Settings:
    topic: str
    host: str
    every_s: float = 10.0
    processes: Sequence[str] = ()
    endpoints: Sequence[str] = ()  # urls
    samples: int | None = None  # then it ends
    grace_s: float = 30.0


@dataclass(slots=True)
class Counters:
    """Since the start; `dropped` and `lost` are records."""

    samples: int = 0
    written: int = 0
    dropped: int = 0  # the buffer was full
    lost: int = 0  # the cluster did not take them in time
    missed: int = 0  # moments for which the sample before took too long
    scrapes_failed: int = 0
    left_out: int = 0  # lines of endpoints that are no numbers, or too many
    unread: int = 0  # parts of the machine that could not be read
    last_failure: str | None = None


@dataclass(slots=True)
class Agent:
    """`read` gives a reading of this machine."""

    connection: ClientSettings
    settings: Settings
    note: Callable[[str], None]
    read: Callable[[Sequence[str]], Reading] = host.read
    wall_s: Callable[[], float] = time.time
    counters: Counters = field(default_factory=Counters)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    _told: tuple[float, int] = (0.0, 0)  # when, and how many were dropped by then
    _number: int = 0  # of the moment that is waited for, counted from 1970
    _failing: set[str] = field(default_factory=set)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        settings = self.settings
        producer = Producer[bytes, bytes](
            self.connection,
            max_block_s=0,
            settings={
                "queue.buffering.max.messages": BUFFER_MESSAGES,
                "queue.buffering.max.kbytes": BUFFER_KIB,
                "compression.type": "zstd",
                "linger.ms": 100,
                "message.timeout.ms": LONGEST_WAIT_MS,
            },
        )
        scraper = Scraper(settings.endpoints)
        try:
            before = self._read()
            while self._wait_for_next() and not self._is_enough():
                now = self._read()
                found = numbers(before, now)
                self._send(producer, found | self._scrape(scraper))
                before = now
                self._tell_of_losses()
        finally:
            producer.close(settings.grace_s)

    def _read(self) -> Reading:
        found = self.read(self.settings.processes)
        self.counters.unread += len(found.unread)
        for part, why in found.unread.items():
            if part not in self._failing:
                self._failing.add(part)
                self.note(f"The numbers of {part} cannot be read: {why}.")
        return found

    def _is_enough(self) -> bool:
        return self.settings.samples is not None and self.counters.samples >= self.settings.samples

    def _wait_for_next(self) -> bool:
        """Waits until the clock shows a multiple of `every_s`; returns False if it is to stop."""
        if self._is_enough():
            return False
        every_s, now_s = self.settings.every_s, self.wall_s()
        number = int(now_s // every_s) + 1
        if self.counters.samples:
            self.counters.missed += max(0, number - self._number - 1)
        self._number = number
        return not self._stopping.wait(number * every_s - now_s)

    def _send(self, producer: Producer[bytes, bytes], found: Mapping[str, float]) -> None:
        self.counters.samples += 1
        moment = time_text(int(self.wall_s() * 1000))
        key = self.settings.host.encode()
        for part, some in enumerate(parted(found)):
            of_sample = f"{self._run}:{self.counters.samples}-{part}"
            value = {"id": of_sample, "time": moment, "host": self.settings.host, "metrics": some}
            headers = [(MESSAGE_ID, of_sample.encode())]
            try:
                producer.take(
                    self.settings.topic, encoded(value), key, None, self._ended, None, headers
                )
            except BufferFull:
                self.counters.dropped += 1
            except ClientError as refusal:
                if producer.failed_for_good:
                    raise
                self.counters.dropped += 1
                self.counters.last_failure = str(refusal).rstrip(".")

    def _ended(self, error: object, message: Any) -> None:
        if error is None:
            self.counters.written += 1
        else:
            self.counters.lost += 1
            at, topic = self.connection.bootstrap, self.settings.topic
            failure = fault_of(error).delivery_explained(at, topic)
            self.counters.last_failure = str(failure).rstrip(".")

    def _tell_of_losses(self) -> None:
        lost, now_s = self.counters.dropped + self.counters.lost, time.monotonic()
        told_s, told = self._told
        if lost > told and now_s - told_s >= TELL_EVERY_S:
            why = self.counters.last_failure or "the buffer is full, the cluster takes nothing"
            self.note(f"{lost - told:,} records of numbers were not written: {why}.")
            self._told = (now_s, lost)

    # ---- endpoints

    def _scrape(self, scraper: Scraper) -> dict[str, float]:
        """The series of all endpoints, each as far as it answers in time."""
        found: dict[str, float] = {}
        for url, answer in scraper.all():
            endpoint = urlsplit(url).netloc.rpartition("@")[2]
            found[series("scrape_up", {"endpoint": endpoint})] = float(isinstance(answer, str))
            if isinstance(answer, ScrapeFailed):
                self._tell_of_failure(url, answer)
                continue
            self._tell_of_success(url)
            said = scraped(answer, endpoint)
            self.counters.left_out += said.left_out
            found = said.numbers | found
        return found

    def _tell_of_failure(self, url: str, why: ScrapeFailed) -> None:
        self.counters.scrapes_failed += 1
        if url not in self._failing:
            self._failing.add(url)
            self.note(f"{without_secrets(url)} gives no numbers: {why}.")

    def _tell_of_success(self, url: str) -> None:
        if url in self._failing:
            self._failing.discard(url)
            self.note(f"{without_secrets(url)} gives numbers again.")


def parted(found: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """Splits into records of a bounded size, at least one."""
    names = sorted(found)
    for at in range(0, max(1, len(names)), IN_ONE_RECORD):
        yield {name: found[name] for name in names[at : at + IN_ONE_RECORD]}
