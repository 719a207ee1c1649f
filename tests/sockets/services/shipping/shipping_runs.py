"""A shipper in the test's own process, on a topic of the test's own."""

import json

from headrace.client import Admin
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.services.shipping.positions import StateFolder
from headrace.services.shipping.records import Origin
from headrace.services.shipping.shipper import Settings, Shipper
from headrace.services.shipping.topic import largest_batch


class Shipping:
    """Ships what is there to a topic of the test's own, again and again."""

    def __init__(self, broker, folder, topic, **settings):
        self.connection = ClientSettings({"bootstrap.servers": broker.bootstrap})
        Admin(broker.bootstrap).topics.create(topic, partitions=1, settings=settings)
        self.folder, self.topic = folder, topic
        self.notes = []

    def once(self, pattern="*.log*", **more):
        shipper = self.shipper(pattern, once=True, **more)
        shipper.run()
        return shipper.counters

    def shipper(self, pattern="*.log*", *, clocks=None, at=None, **more):
        """`at`: another cluster."""
        patterns = [str(self.folder / pattern)] if pattern else []
        state = StateFolder(self.folder / "state") if patterns else None
        settings = Settings(patterns=patterns, topic=self.topic, origin=Origin(host="h"), **more)
        connection = at or self.connection
        if at is None:
            settings.batch_bytes = largest_batch(connection, self.topic)
        return Shipper(connection, settings, state, self.notes.append, **(clocks or {}))

    def messages(self):
        return [one["message"] for one in self.records()]

    def records(self):
        reader = RecordReader(self.connection, self.topic)
        found = [json.loads(one.value) for one in reader.records()]
        reader.close()
        return found


def add(path, *lines):
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


LINES = [f"INFO line {n} of a program that says where it is" for n in range(9)]


class Clock:
    """Both clocks of a shipper; each look at the monotonic one takes a millisecond."""

    def __init__(self):
        self.now_ms, self.ahead_ms = 1_000, 1_767_225_600_000

    def monotonic(self):
        self.now_ms += 1
        return self.now_ms

    def wall(self):
        return self.now_ms + self.ahead_ms

    @property
    def clocks(self):
        return {"wall_ms": self.wall, "monotonic_ms": self.monotonic}


def passes(shipper, clock, step_ms=1_100, count=1):
    """What the loop does in so many turns, with a look in each."""
    for _ in range(count):
        clock.now_ms += step_ms
        shipper.roster.look(clock.now_ms)
        while shipper._read_all():
            pass
        shipper._poll(0.05)


def written(shipper, clock, count):
    """Turns until so many records are written."""
    for _ in range(2_000):
        if shipper.counters.written >= count:
            return
        passes(shipper, clock, step_ms=10)
    raise AssertionError(f"{shipper.counters}")
