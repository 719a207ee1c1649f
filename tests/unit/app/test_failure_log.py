"""The log names each failed attempt in one line, and a flood of them in a few."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.app.observation.bounded_log import BoundedLog, Kind
from headrace.app.observation.failure_log import in_a_line, wait_text
from headrace.app.worker.timers import Timers


class Order(BaseModel):
    number: int


KIND = Kind("more attempts failed", most=3, period_ms=10_000)


class World:
    """A clock, and what is to be called when it says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.timers = Timers()
        self.log = BoundedLog(clock=lambda: self.now_ms, after=self.timers.at)

    def pass_ms(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.timers.run_due(self.now_ms)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def lines(caplog: Any) -> Any:
    caplog.set_level(logging.INFO, logger="headrace.app")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_flood_is_a_few_lines_and_a_sum(world: World, lines: Any) -> None:
    for number in range(7_000):
        world.log.say(KIND, "NameError", logging.WARNING, f"line {number}")
    assert lines() == ["line 0", "line 1", "line 2"]
    world.pass_ms(10_000)
    assert lines()[3:] == ["6,997 more attempts failed (NameError); the last: line 6999"]
    world.log.say(KIND, "NameError", logging.WARNING, "again")
    assert lines()[4:] == ["again"]
    world.pass_ms(10_000)
    assert len(lines()) == 5, "nothing was left out, so there is nothing to sum up"


def test_a_flood_of_one_error_does_not_hide_another(world: World, lines: Any) -> None:
    for number in range(5):
        world.log.say(KIND, "Undecodable", logging.WARNING, f"bytes {number}")
    world.log.say(KIND, "NameError", logging.WARNING, "name")
    assert lines()[-1] == "name"


def test_what_is_counted_is_said_at_the_end(world: World, lines: Any) -> None:
    for number in range(4):
        world.log.say(KIND, "KeyError", logging.WARNING, f"line {number}")
    world.log.close()
    assert lines()[-1] == "1 more attempts failed (KeyError); the last: line 3"
    world.pass_ms(10_000)
    assert len(lines()) == 4


def test_only_the_first_of_a_kind_has_its_stack(world: World, caplog: Any) -> None:
    error = LookupError("gone")
    for _ in range(2):
        trace = (LookupError, error, None)
        world.log.say(KIND, "LookupError", logging.ERROR, "failed", trace)
    assert [record.exc_info is not None for record in caplog.records] == [True, False]


def test_an_error_is_one_line_of_printable_text() -> None:
    try:
        raise ValueError("first\nsecond \x1b[31mred")
    except ValueError as error:
        said = in_a_line(error)
    assert said.startswith(r"ValueError: first second \x1b[31mred (test_failure_log.py:")
    assert in_a_line(KeyError()) == "KeyError"
    assert len(in_a_line(ValueError("x" * 5_000))) < 400


def test_an_error_of_a_library_is_placed_where_the_program_called_it() -> None:
    with pytest.raises(ValueError) as caught:
        Order.model_validate_json(b"{")
    assert "(test_failure_log.py:" in in_a_line(caught.value)


def test_waits_as_people_say_them() -> None:
    waits = {200: "200 ms", 1_000: "1 s", 1_040: "1 s", 2_460: "2.5 s", 41_000: "41 s"}
    waits |= {600_000: "10 min", 86_400_000: "24 h"}
    assert {ms: wait_text(ms) for ms in waits} == waits
