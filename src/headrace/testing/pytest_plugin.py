"""The pytest fixture `headrace_broker`, available as soon as Headrace is installed.

One broker per test, ready in tens of milliseconds. Nothing of Headrace is loaded until it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing import Broker


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """A real broker on a free port: `headrace_broker.bootstrap` is its address."""
    from headrace.testing import Broker

    with Broker() as broker:
        yield broker
