"""The example of the order that closes itself: half an hour in no time, and as its README says."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing import Broker

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "close-unpaid-order"
SHOP = EXAMPLE / "shop.py"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with Broker(delay=True) as running:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", running.bootstrap)
        yield running


def test_an_unpaid_order_closes_itself_after_thirty_minutes(broker: Broker) -> None:
    module: dict[str, Any] = runpy.run_path(str(SHOP))
    module["make_topic"]()
    shop = module["Shop"]()
    shop.place("order-1", 5)
    broker.advance(minutes=20)
    shop.place("order-2", 6)
    shop.place("order-3", 7)
    shop.pay("order-2")
    broker.advance(minutes=10)
    shop.close_unpaid(1)
    assert shop.orders == {"order-1": "closed", "order-2": "paid", "order-3": "open"}
    broker.advance(minutes=20)
    shop.close_unpaid(1)
    assert shop.orders == {"order-1": "closed", "order-2": "paid", "order-3": "closed"}
    shop.producer.close()


def test_the_shop_runs_as_its_readme_says(broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, str(SHOP)],
        env=os.environ | {"PAYMENT_WINDOW": "1s"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert sorted(lines[-2:]) == [
        "order-41 is closed: 12 were not paid",
        "order-43 is closed: 30 were not paid",
    ]
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    assert all(line in readme for line in lines)
