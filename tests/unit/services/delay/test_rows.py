"""What is delivered, and how late that is."""

from headrace.services.delay.timeline.rows import Delivery, deliveries, row_of
from headrace.wire.contract.delay_instructions import Schedule

SENT_MS = 1_700_000_000_000
AN_HOUR = 3_600_000


def made(due_ms: int):
    """The delivery of a record that was sent at SENT_MS."""
    record = 7, SENT_MS, b"key", b"value", []
    [delivery] = deliveries([row_of(record, Schedule(due_ms, None))], "orders.delayed", 0)
    return delivery


def test_lateness_counts_from_when_a_record_could_be_delivered():
    early = made(SENT_MS + AN_HOUR)
    assert early.from_ms == early.due_ms == SENT_MS + AN_HOUR
    late = made(SENT_MS - AN_HOUR)
    assert late.due_ms == SENT_MS - AN_HOUR, "the record itself tells what was asked for"
    assert late.from_ms == SENT_MS, "nobody was an hour late with what came an hour late"


def test_each_field_of_a_delivery_has_its_name():
    """They are made without the check that a call would do: one too many would not be noticed."""
    record = 7, SENT_MS, b"key", b"value", []
    schedule = Schedule(SENT_MS + AN_HOUR, [("trace", b"1")], partition=3, id="m-1")
    [found] = deliveries([row_of(record, schedule)], "orders.delayed", 5, "topic-id")
    due = b"%d" % (SENT_MS + AN_HOUR)
    assert found == Delivery(
        key=b"key",
        value=b"value",
        headers=[
            ("trace", b"1"),
            ("headrace-due-at", due),
            ("headrace-source", b"orders.delayed/5/7"),
            ("headrace-source-topic-id", b"topic-id"),
            ("headrace-message-id", b"m-1@" + due),
        ],
        partition=3,
        due_ms=SENT_MS + AN_HOUR,
        offset=7,
        from_ms=SENT_MS + AN_HOUR,
    )
    assert type(found) is Delivery
    assert made(SENT_MS).partition == 0, "without one of its own: the companion's number"
