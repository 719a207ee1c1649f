"""The first example runs, and its biller bills each order once although it dies half way."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Producer
from headrace.testing import Broker

SHOP = Path(__file__).resolve().parents[3] / "examples" / "first-steps" / "shop.py"


def test_the_shop_runs_as_its_readme_says(headrace_broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, str(SHOP)],
        env=os.environ | {"HEADRACE_BOOTSTRAP": headrace_broker.bootstrap},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines = set(done.stdout.splitlines())
    assert {"bill of 12 for anna", "bill of 8 for anna", "bill of 4 for ben"} <= lines
    readme = (SHOP.parent / "README.md").read_text("utf-8")
    assert all(line in readme for line in lines)


def test_a_biller_that_dies_half_way_doubles_nothing(
    headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", headrace_broker.bootstrap)
    shop: dict[str, Any] = runpy.run_path(str(SHOP))
    shop["make_topics"]()
    shop["take_orders"]([{"customer": "c", "item": "pears", "count": n} for n in (1, 2, 3)])
    send, sent = Producer.send, []

    def send_two_and_die(self: Any, *given: Any, **more: Any) -> Any:
        sent.append(given)
        if len(sent) == 3:
            raise KeyboardInterrupt
        return send(self, *given, **more)

    with monkeypatch.context() as dying:
        dying.setattr(Producer, "send", send_two_and_die)
        with pytest.raises(KeyboardInterrupt):
            shop["write_bills"](3)
    shop["write_bills"](3)
    assert shop["read_bills"](3) == [4, 8, 12]
