"""`headrace.logs.Handler`: a program's log in a topic, and never a program that waits for it."""

import json
import logging
import socket

import pytest

from headrace.client import Admin
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.logs import MOST_RECORDS, Handler
from headrace.testing import Broker


@pytest.fixture(scope="module")
def broker():
    with Broker() as one:
        yield one


def logger_with(handler):
    logger = logging.Logger("shop.pay")
    logger.addHandler(handler)
    return logger


def read(broker, topic):
    reader = RecordReader(ClientSettings({"bootstrap.servers": broker.bootstrap}), topic)
    found = [(json.loads(one.value), dict(one.headers)) for one in reader.records()]
    reader.close()
    return found


def test_records_of_a_logger_have_the_form_of_shipped_lines(broker):
    Admin(broker.bootstrap).topics.create("logs", partitions=1)
    handler = Handler(broker.bootstrap, service="shop", host="h")
    logger = logger_with(handler)
    logger.info("paid %d", 7, extra={"order": 3, "who": "ada"})
    try:
        raise KeyError("gone")
    except KeyError:
        logger.exception("cannot pay")
    logger.critical("x" * 70_000)
    handler.close()
    (paid, headers), (failed, _), (long, _) = read(broker, "logs")
    assert headers["headrace-message-id"] == paid.pop("id").encode()
    assert paid.pop("time").endswith("Z")
    assert paid == {
        "service": "shop",
        "host": "h",
        "level": "INFO",
        "message": "paid 7",
        "fields": {"logger": "shop.pay", "order": "3", "who": "ada"},
    }
    assert failed["level"] == "ERROR"
    assert failed["message"].startswith("cannot pay\nTraceback") and "KeyError" in failed["message"]
    assert (long["level"], long["cut"], len(long["message"])) == ("FATAL", "begin", 65_536)
    assert (handler.dropped, handler.lost) == (0, 0)


def test_without_a_cluster_the_program_goes_on_and_hears_what_was_dropped():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        told = []
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        handler = Handler(address, service="shop", close_s=0, tell=told.append)
        logger = logger_with(handler)
        for number in range(MOST_RECORDS + 50):
            logger.warning("number %d", number)
        assert handler.dropped >= 49
        assert len(told) == 1 and "1 log records were dropped" in told[0]
        handler.close()
    assert handler.dropped + handler.lost >= MOST_RECORDS + 50
    assert len(told) == 2


def test_what_the_client_logs_is_not_sent_by_the_client(broker):
    Admin(broker.bootstrap).topics.create("own", partitions=1)
    handler = Handler(broker.bootstrap, topic="own")
    own = logging.Logger("headrace.client")
    own.addHandler(handler)
    own.error("a loop")
    handler.close()
    assert read(broker, "own") == []
