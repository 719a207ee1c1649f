"""Clients in a process that forks: the parent goes on, the child is told so and never hangs."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from headrace.client import Admin
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.logs import Handler
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_log_handler_in_a_child_sends_its_own_records_and_writes_them_when_it_is_closed() -> None:
    with Broker() as broker:
        Admin(broker.bootstrap).topics.create("logs", partitions=1)
        handler = Handler(broker.bootstrap, service="shop")
        logger = logging.Logger("shop.pay")
        logger.addHandler(handler)
        logger.info("of the parent")
        child = os.fork()
        if not child:
            logger.info("of the child")
            handler.close()
            os._exit(0 if handler.lost + handler.dropped == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        handler.close()
        reader = RecordReader(ClientSettings({"bootstrap.servers": broker.bootstrap}), "logs")
        found = [json.loads(one.value) for one in reader.records()]
        reader.close()
    assert sorted(one["message"] for one in found) == ["of the child", "of the parent"]
    assert len({one["id"].partition(":")[0] for one in found}) == 2
