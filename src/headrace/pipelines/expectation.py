"""Rules that rows must keep, and what becomes of a row that does not. Knows no Spark.

`expect("amount >= 0")`: the rule is Spark SQL over the columns of the topic's schema. A rule that
is null for a row, because a column is, does not hold, and neither does one that raises an error,
such as `100 / amount > 5` for an amount of 0. Such a row is a dead letter, or with `then="drop"`
left out and counted, or with `then="stop"` the end of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.pipelines.failure import PipelineError

DEAD_LETTER, DROP, STOP = "dead_letter", "drop", "stop"
ACTIONS = (DEAD_LETTER, DROP, STOP)


@dataclass(slots=True, frozen=True)
class Expectation:
    """The condition of a rule, and the effect where it does not hold."""

    rule: str
    then: str = DEAD_LETTER

    def __post_init__(self) -> None:
        if not self.rule.strip():
            raise PipelineError("A rule is a condition in SQL, such as amount >= 0.")
        if self.then not in ACTIONS:
            raise PipelineError(f"expect({self.rule!r}): then= is one of {', '.join(ACTIONS)}.")

    @property
    def why(self) -> str:
        """Returns the reason for a row that breaks the rule. It contains the action, so that the
        rule is recognized where rows are set aside."""
        return f"expected {self.rule}" + self._action

    @property
    def why_raised(self) -> str:
        """Returns the reason for a row for which the rule itself raises an error."""
        return f"expected {self.rule}, which raised an error for this record" + self._action

    @property
    def _action(self) -> str:
        return "" if self.then == DEAD_LETTER else f" ({self.then})"


def expect(rule: str, *, then: str = DEAD_LETTER) -> Expectation:
    """A rule in SQL for each row; `then` is "dead_letter", "drop" or "stop"."""
    return Expectation(rule, then)
