"""The side of the intake that reads: what it left while it waited comes when it is read anew."""

import time

from headrace.client import Admin, Producer
from headrace.client.connection import ClientSettings
from headrace.services.delay.intake import Reader
from headrace.testing import Broker
from tests.sockets.fills import FILLS

WITHIN_S = 180
PLACE = ("orders.delay", 0)


def read_three(reader):
    found = []
    deadline = time.monotonic() + WITHIN_S
    while len(found) < 3:
        assert time.monotonic() < deadline, f"only {found}"
        found += [fields[0] for fields in reader.take(0.05, 100).records.get(PLACE, [])]
    return found


def test_what_was_paused_is_read_again_from_the_beginning():
    """As after a producer is lost while a target takes nothing: its partition was paused."""
    with Broker() as broker:
        Admin(broker.bootstrap).topics.create(PLACE[0], partitions=1)
        with Producer(broker.bootstrap, settings=FILLS) as producer:
            for number in range(3):
                producer.send(PLACE[0], b"%d" % number, partition=0)
        reader = Reader(ClientSettings({"bootstrap.servers": broker.bootstrap}))
        reader.read(PLACE, 0)
        assert read_three(reader) == [0, 1, 2]
        reader.pause(PLACE)
        reader.read(PLACE, 0)
        assert read_three(reader) == [0, 1, 2]
        reader.close()
