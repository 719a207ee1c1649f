"""Clients in a process that forks: the parent goes on, the child is told so and never hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.testing import Broker

PROGRAM = """
import os, sys
from headrace.client import Consumer, Misuse, Producer

def refused(call):
    try:
        call()
    except Misuse as misuse:
        return "forked" in str(misuse)

at = sys.argv[1]
producer, consumer = Producer(at), Consumer(at)
producer.send_sync("forks", b"before")
consumer.assign(consumer.partitions_of("forks"))
# All are connected: a fork while librdkafka looks up an address locks the C library in the child.
first = consumer.poll(60)
pending = producer.send("forks", b"under way")
child = os.fork()
if not child:
    ok = refused(lambda: producer.send("forks", b"lost")) and refused(producer.flush)
    ok = ok and refused(consumer.assignment)
    ok = ok and (pending.done() or refused(pending.result))
    producer.close()
    consumer.close()
    with Producer(at) as own:
        own.send_sync("forks", b"of the child")
    del producer, consumer
    sys.exit(0 if ok else 7)
status = os.waitpid(child, 0)[1]
producer.send_sync("forks", b"after")
producer.close()
values = {record.value for record in (first, *(consumer.poll(60) for _ in range(3))) if record}
consumer.close()
print(os.waitstatus_to_exitcode(status), sorted(values))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_makes_clients_of_its_own() -> None:
    with Broker() as broker:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, broker.bootstrap],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.stderr == ""
    assert done.stdout == "0 [b'after', b'before', b'of the child', b'under way']\n"
