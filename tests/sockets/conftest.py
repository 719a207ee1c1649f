"""What tests over real sockets share."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.client.connection import Setting
from headrace.client.producer import producer
from headrace.client.producer.no_loss import defaults_for
from tests.sockets.fills import FILLS


@pytest.fixture
def quick_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers without a transaction are not idempotent: their first record arrives at once.

    For stories in which programs send, and how they send is not what is tested (`fills.py` says
    what they would wait for). `tests/sockets/client/test_producer.py` has producers as they are.
    """

    def quick(
        given: Mapping[str, Setting], transactional_id: str | None = None
    ) -> dict[str, Setting]:
        return defaults_for(given, transactional_id) | ({} if transactional_id else FILLS)

    monkeypatch.setattr(producer, "defaults_for", quick)
