"""What is written about a parked record is of use to whoever reads it."""

from headrace.app import retry
from headrace.app.dead_letters import from_the_handler_on, why_headers


def raised(handler):
    try:
        handler()
    except ValueError as error:
        return error
    raise AssertionError("it did not fail")


def handler():
    retry.milliseconds("soon", "first")


def test_the_stack_shows_the_handler():
    error = raised(handler)
    headers = why_headers(
        error, attempts=1, first_at_ms=0, last_at_ms=0, origin=("t", 0, 0), group="g"
    )
    assert b"in handler" in dict(headers)["headrace-dead-stack"]


def test_calls_of_the_sdk_before_the_handler_are_left_out():
    error = raised(handler)
    ours = error.__traceback__.tb_next.tb_next  # within headrace.app
    error.__traceback__ = ours
    assert from_the_handler_on(error) is ours  # nothing else is there: better than nothing
