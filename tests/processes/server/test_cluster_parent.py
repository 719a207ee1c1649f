"""The parent of a cluster's nodes, with small programs in the place of nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import until

PROGRAM = Path(__file__).with_name("parent_of_stand_ins.py")


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, text: str) -> str:
        """The first line with this text in it, of those that come from now on."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return self.lines[-1]
        raise AssertionError(f"it never said {text!r}: {self.lines}")

    def rest(self) -> list[str]:
        assert self.process.stdout is not None
        return [line.rstrip("\n") for line in self.process.stdout]


@contextmanager
def parent(folder: Path, *ways: str) -> Iterator[Running]:
    command = [sys.executable, str(PROGRAM), str(folder), *ways]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def pids(running: Running) -> list[int]:
    return [int(word) for word in running.until("pids").split()[1:]]


def test_ctrl_c_stops_the_nodes_one_after_the_other(tmp_path: Path) -> None:
    with parent(tmp_path, "well", "well", "well") as running:
        pids(running)
        assert "broker 2 | hello from 2" in running.lines
        running.process.send_signal(signal.SIGINT)
        rest = running.rest()
        assert "broker 3 | half a line" in rest, "the last words are not lost"
        assert any("broker 1 | heard {'cluster_stops': True}" in line for line in rest)
        assert running.process.wait() == 0
    ended = [int((tmp_path / f"{node}.ended").read_text()) for node in (3, 2, 1)]
    assert ended == sorted(ended)


def test_a_killed_node_is_started_again_and_the_others_are_told(tmp_path: Path) -> None:
    with parent(tmp_path, "well", "well") as running:
        _, second = pids(running)
        os.kill(second, signal.SIGKILL)
        assert "SIGKILL; it is started again" in running.until("broker 2 | was ended by")
        running.until("broker 1 | heard {'died': {'node': 2, 'broker_epoch': 2}}")
        running.until("broker 2 | hello from 2")
        running.process.terminate()
        assert running.process.wait() == 0


def test_a_node_whose_folder_is_lost_is_not_started_on_it(tmp_path: Path) -> None:
    with parent(tmp_path, "well", "well") as running:
        _, second = pids(running)
        (tmp_path / "2.lost").touch()
        os.kill(second, signal.SIGKILL)
        running.until("broker 2 | The folder of 2 is lost.")
        before = len(running.lines)
        running.until("broker 2 | The folder of 2 is lost.")  # looked at again after a rest
        assert "broker 2 | hello from 2" not in running.lines[before:]
        (tmp_path / "2.lost").unlink()
        running.until("broker 2 | hello from 2")
        running.process.terminate()
        assert running.process.wait() == 0


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with parent(tmp_path, "well", "well") as running:
        pids(running)
        running.process.kill()
        running.process.wait()
        # Their output comes by the parent; only its files tell.
        assert running.rest() is not None
    for node in (1, 2):
        until((tmp_path / f"{node}.ended").exists)


def test_a_node_that_cannot_start_ends_the_command_with_its_sentence(tmp_path: Path) -> None:
    with parent(tmp_path, "well", "refuses") as running:
        failed = running.until("failed:")
        assert failed == "failed: Broker 2 cannot start: the port is taken."
        assert running.process.wait() == 0
    assert (tmp_path / "1.ended").exists(), "the other one was stopped"
