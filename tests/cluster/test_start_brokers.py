"""`headrace start --brokers 3` as a person uses it: the screen, a death, Ctrl-C, the next start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cluster.started import refusal_of, started


def test_a_killed_broker_is_told_of_and_comes_back_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--brokers", "3") as running:
        running.wait_until_ready()
        assert list(running.pids) == [1, 2, 3]
        assert "runs already" in refusal_of(data)
        os.kill(running.pids[2], signal.SIGKILL)
        running.until("broker 2 | was ended by SIGKILL; it is started again")
        running.until("the controller knows that broker 2 has died", "this broker is unfenced")
        running.stop()
    for name in ("data", "data-3"):
        assert (tmp_path / name / ".kafka_cleanshutdown").exists()
    with started(data) as again:
        assert len(again.wait_until_ready().pids) == 3, "the folder knows how many"
        again.stop()
