"""Levels that promise what is not served, and the command that lowers them."""

from __future__ import annotations

from headrace.client.admin.features import Feature
from headrace.operations.checkup.features import check_features
from headrace.operations.checkup.finding import FindingState


def test_empty_promises_are_named_with_the_command_that_ends_them() -> None:
    old = [
        Feature("share.version", 1, 0, 1, served=False),
        Feature("streams.version", 1, 0, 1, served=False),
        Feature("transaction.version", 2, 0, 2),
    ]
    [found] = check_features(old)
    assert found.state == FindingState.WATCH
    assert found.advice is not None
    assert "headrace brokers features share.version=0 streams.version=0" in found.advice


def test_what_is_served_or_not_promised_is_well() -> None:
    apaches = [Feature("share.version", 1, 0, 1), Feature("streams.version", 1, 0, 1)]
    ours = [Feature("share.version", 0, 0, 1, served=False)]
    assert check_features(apaches) == check_features(ours) == []
