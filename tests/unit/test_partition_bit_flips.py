"""One flipped bit in a file of a partition never hides or shows a record silently."""

from __future__ import annotations

import pytest

from tests.unit.bit_flips import WRONG
from tests.unit.partition_bit_flips import BACK, build, one_of_each, walk


@pytest.mark.parametrize(
    "clean",
    [
        pytest.param(False, id="killed"),
        pytest.param(True, id="stopped", marks=pytest.mark.full),
    ],
)
def test_a_start_serves_all_and_says_what_could_matter(clean: bool) -> None:
    files = build(clean=clean)
    verdicts = list(walk(files, one_of_each(files), step=61))
    assert [verdict for verdict in verdicts if verdict[2] == WRONG] == []
    back = {name for name, _, ended, _ in verdicts if ended == BACK}
    assert back <= {"log-start-offset-checkpoint", "recovery-point-offset-checkpoint"}
