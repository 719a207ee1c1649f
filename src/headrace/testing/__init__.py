"""The real broker inside a test: `with Broker() as broker: ... broker.bootstrap`; clusters, apps.

Loaded on first use: the pytest plugin beside it is part of every run of pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.app import TestApp
    from headrace.testing.broker import Broker
    from headrace.testing.cluster import Cluster

__all__ = ["Broker", "Cluster", "TestApp"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from headrace.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from headrace.testing.cluster import Cluster

        return Cluster
    if name == "TestApp":
        from headrace.testing.app import TestApp

        return TestApp
    raise AttributeError(f"headrace.testing has no {name}")
