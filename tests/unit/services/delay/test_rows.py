"""What is delivered, and how late that is."""

from headrace.services.delay.timeline.rows import deliveries, row_of
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
