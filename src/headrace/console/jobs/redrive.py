"""Letters of one topic that are sent again at a rate. Sent letters are in the journal
(`services/redrive`), so the same action continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.console.jobs.owner import REDRIVE, Subject, ending
from headrace.services.redrive.service import Step

MOST_REFUSALS = 20


@dataclass(slots=True)
class Redrive:
    topic: str
    rate: float  # letters per second
    letters: Callable[[], Iterator[Step]]
    sent: int = 0
    refused: int = 0
    refusals: list[str] = field(default_factory=list)  # the first few

    @property
    def subject(self) -> Subject:
        return REDRIVE, self.topic

    @property
    def taken(self) -> str:
        return f"Letters of {self.topic} are being sent again already; stop that first."

    def steps(self) -> Iterator[None]:
        with ending(self.letters()) as letters:
            for step in letters:
                self._count(step)
                yield

    def _count(self, step: Step) -> None:
        if not step.refusal:
            self.sent += 1
            return
        self.refused += 1
        if len(self.refusals) < MOST_REFUSALS:
            self.refusals.append(step.refusal)
