"""`headrace demo` as a person runs it: it ends by itself, and the money is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_money_is_right_with_the_outbox_and_not_without() -> None:
    program = str(Path(sys.executable).with_name("headrace"))
    said = subprocess.run(
        [program, "demo", "--seconds", "40", "--json"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    ours, naive = found["outbox"], found["naive"]
    assert ours["sent"] > 100
    assert (ours["lost"], ours["doubled"]) == (0, 0)
    assert ours["payment"] + ours["savings"] == found["first_money"]
    assert naive["lost"] + naive["doubled"] > 0
    assert found["kills"]["broker"] >= 1
