"""What a program may do to its log handler: it never waits, never loops, and what is lost is told.

`nobody` is an address at which no cluster answers.
"""

import json
import logging
import sys

import pytest

from headrace import logs
from headrace.client import Admin
from headrace.client.admin.acls import Acl, AclFilter
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.logs import MOST_RECORDS, Handler
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.nobody import nobody as address_of_nobody


@pytest.fixture
def nobody():
    return address_of_nobody()


def logger_with(handler):
    logger = logging.Logger("shop.pay")
    logger.addHandler(handler)
    return logger


def filled(address, **more):
    handler = Handler(address, service="shop", close_s=0, **more)
    logger = logger_with(handler)
    for number in range(MOST_RECORDS):
        logger.info("number %d", number)
    return handler, logger


def test_a_record_that_is_dropped_waits_for_nothing(nobody):
    handler, logger = filled(nobody, tell=lambda text: None)
    waits = []
    poll = handler._producer._poll
    handler._producer._poll = lambda timeout_s: waits.append(timeout_s) or poll(timeout_s)
    for number in range(20):
        logger.info("dropped %d", number)
    assert handler.dropped >= 19
    assert waits and set(waits) == {0}
    handler.close()


def test_standard_error_that_leads_back_into_the_log_is_no_loop(nobody):
    told = []

    def tell(text):
        told.append(text)
        if len(told) < 50:
            logger.error(text)

    handler, logger = filled(nobody, tell=tell)
    logger.info("one too many")
    logger.info("and another")
    assert len(told) == 1
    handler.close()


def test_a_program_without_standard_error_goes_on(nobody, monkeypatch):
    handler, logger = filled(nobody)
    monkeypatch.setattr(sys, "stderr", None)
    logger.info("one too many")
    logger.info("and another")
    handler.close()
    assert handler.dropped + handler.lost >= MOST_RECORDS + 1


class Unprintable:
    def __str__(self):
        raise RuntimeError("no text of this")

    __repr__ = __str__


def test_what_cannot_be_written_as_json_costs_its_own_field_only(monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    loop = {}
    loop["itself"] = loop
    with Broker() as broker:
        Admin(broker.bootstrap).topics.create("logs", partitions=1)
        handler = Handler(broker.bootstrap, service="shop")
        extra = {"loop": loop, "keys": {(1, 2): 3}, "odd": Unprintable(), "nan": float("nan")}
        logger_with(handler).info("paid", extra=extra)
        handler.close()
        reader = RecordReader(ClientSettings({"bootstrap.servers": broker.bootstrap}), "logs")
        [record] = [json.loads(one.value) for one in reader.records()]
        reader.close()
    assert record["message"] == "paid"
    assert "itself" in record["fields"]["loop"] and "(1, 2)" in record["fields"]["keys"]
    assert "Unprintable" in record["fields"]["odd"]


def test_a_message_that_cannot_be_made_is_counted(nobody, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = Handler(nobody, service="shop", close_s=0, tell=lambda text: None)
    logger_with(handler).info("%d", "no number")
    assert handler.dropped == 1
    handler.close()


def test_a_handler_that_is_closed_counts_what_it_no_longer_takes(nobody):
    told = []
    handler = Handler(nobody, service="shop", close_s=0, tell=told.append)
    logger = logger_with(handler)
    handler.close()
    logger.info("after the end")
    assert handler.dropped == 1 and "closed" in told[0]


def test_a_right_that_is_given_later_is_enough(monkeypatch):
    """A producer that was refused takes nothing any more, so another one is made."""
    monkeypatch.setattr(logs, "OPEN_EVERY_S", 0.0)
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    told = []
    with Broker(settings=settings) as broker:
        admin = Admin(broker.bootstrap)
        admin.topics.create("logs", partitions=1)
        admin.acls.add([Acl("topic", "logs", "literal", "User:ANONYMOUS", "*", "write", "deny")])
        handler = Handler(broker.bootstrap, service="shop", tell=told.append)
        logger = logger_with(handler)

        def is_refused():
            logger.info("refused")
            return handler.dropped

        def is_allowed():
            logger.info("allowed")
            return arrived(broker)

        until(is_refused)
        assert "may not" in told[0]
        admin.acls.remove([AclFilter()])
        until(is_allowed)
        handler.close()


def arrived(broker):
    [topic] = Admin(broker.bootstrap).topics.describe(["logs"])
    return topic.partitions[0].end_offset
