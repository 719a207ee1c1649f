"""What a benchmark is: a question, its rows, and a function that measures one broker once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from .brokers import Target
from .load import Usage
from .results import APACHE, HEADRACE, Row, Samples

# Work of others above this share of the machine makes a sample worth little; it is reported.
NOISE_SHARE = 0.05


@dataclass(slots=True)
class Run:
    """One measurement of one broker: where, how much, and remarks for the reader."""

    target: Target
    quick: bool
    details: list[str]  # what each sample was limited by
    warnings: list[str]  # why a sample is worth less
    large: bool = False  # more than the default where a question has a larger form

    def amount(self, full: float, quick: float) -> float:
        """How much of something: seconds, bytes, requests."""
        return quick if self.quick else full

    def count(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def watch_noise(self, what: str, usage: Usage) -> None:
        """Note who was busy: a client near one core would hide a faster broker."""
        others = usage.others_s / usage.wall_s / (os.cpu_count() or 1)
        client = usage.client_s / usage.wall_s
        broker = usage.broker_s / usage.wall_s
        who = f"{what}, {self.target.name}"
        self.details.append(
            f"{who}: broker {broker:.2f} cores, client {client:.2f}, others {others:.0%} of all"
        )
        if others > NOISE_SHARE:
            self.warnings.append(f"{who}: {others:.0%} of the machine did other work")


@dataclass(slots=True)
class Benchmark:
    title: str
    rows: tuple[Row, ...]
    measure: Callable[[Run], Samples]
    rounds: int = 3
    systems: tuple[str, ...] = (APACHE, HEADRACE)  # measured in turn
    rivals: tuple[str, ...] = (APACHE,)  # the ratio is Headrace / the best of them

    def __post_init__(self) -> None:
        for row in self.rows:
            row.systems, row.rivals = self.systems, self.rivals
