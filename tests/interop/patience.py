"""How long a test may take before it counts as hanging.

The tests here wait for other people's programs, on machines that may be several times slower than
the one they were written on. A test that is late is not wrong: only one that hangs is ended.
"""

from __future__ import annotations

from pathlib import Path

import pytest

A_TEST_S = 600


def give_time(items: list[pytest.Item], folder: Path) -> None:
    """So long at least for each test of a folder; those that ask for more get it."""
    for item in items:
        asked = item.get_closest_marker("timeout")
        if item.path.is_relative_to(folder) and (asked is None or asked.args[0] < A_TEST_S):
            item.add_marker(pytest.mark.timeout(A_TEST_S), append=False)
