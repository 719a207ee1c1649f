"""A node with two data folders, one of which disappears under it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.command_in_process import run_command
from tests.interop.brokers import free_port
from tests.patience import until

HEADRACE = [sys.executable, "-m", "headrace"]
WITHIN_S = 300


class TwoFolders:
    """One process with its folders `one` and `two`."""

    def __init__(self, folder: Path) -> None:
        self.one, self.two = folder / "one", folder / "two"
        self.log_dirs = f"log.dirs={self.one},{self.two}"
        self.metrics = f"127.0.0.1:{free_port()}"
        self.said = folder / "said"
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [*HEADRACE, "start", "--json", "--listen", "127.0.0.1:0", "--no-console"]
                + ["--metrics", self.metrics, "--set", self.log_dirs]
                + ["--set", "log.flush.offset.checkpoint.interval.ms=500"],
                stdout=subprocess.PIPE,
                stderr=said,
            )
        assert self.process.stdout is not None
        self.bootstrap = json.loads(self.process.stdout.readline())["address"]

    def command(self, *words: str) -> tuple[int, str]:
        done = run_command(*words, "-b", self.bootstrap)
        return done.returncode, done.stdout + done.stderr

    def status(self) -> Any:
        return json.loads(self.command("cluster", "status", "--json")[1])

    def produce(self, topic: str, partition: int, within_s: float = WITHIN_S) -> object:
        """The error, or None."""
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "message.timeout.ms": int(within_s * 1_000),
            }
        )
        errors: list[object] = []
        producer.produce(
            topic, b"x", partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
        assert producer.flush(WITHIN_S) == 0
        return errors[0]

    def log(self) -> str:
        return self.said.read_text()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(WITHIN_S) == 0


@contextlib.contextmanager
def started(folder: Path) -> Iterator[TwoFolders]:
    node = TwoFolders(folder)
    try:
        yield node
    finally:
        if node.process.poll() is None:
            node.process.kill()
            node.process.wait()
        if node.process.stdout is not None:
            node.process.stdout.close()


def create(node: TwoFolders, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for made in admin.create_topics([NewTopic(name, 2, 1)]).values():
        made.result(WITHIN_S)


def test_a_folder_disappears_and_the_node_lives(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        create(node, "orders")
        assert node.produce("orders", 0) is None and node.produce("orders", 1) is None
        lost = 1 if (node.two / "orders-1").exists() else 0
        kept = 1 - lost
        until(lambda: not node.status()["offline_folders"], "a healthy start")
        node.two.rename(tmp_path / "gone")
        until(lambda: node.status()["offline_folders"], "the folder is told to be offline")
        assert node.process.poll() is None
        assert f"the data folder {node.two} (directory.id" in node.log()
        # The controller hears of the folder first, and writes who leads then.
        until(lambda: node.status()["offline"] == [f"orders-{lost}"], "its partition is offline")
        status = node.status()
        assert status["offline_folders"] == [{"broker": 1, "folder": str(node.two)}]
        assert not status["well"]
        code, shown = node.command("cluster", "status")
        assert code == 1 and f"the data folder {node.two} of broker 1 is offline" in shown
        assert (
            f"offline replicas (partition:brokers): {lost}:1"
            in node.command("topics", "describe", "orders")[1]
        )
        assert f"offline: {node.two} of broker 1" in node.command("doctor")[1]
        with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=WITHIN_S) as page:
            told = page.read().decode()
        assert f'headrace_data_folder_offline{{folder="{node.two}"}} 1' in told
        assert f'headrace_data_folder_offline{{folder="{node.one}"}} 0' in told
        assert node.produce("orders", kept) is None
        assert node.produce("orders", lost, within_s=3) is not None
        node.stop()

    with started(tmp_path) as node:  # without its disk
        until(lambda: "it is empty, and replicas of this node lie in" in node.log(), "it is told")
        until(lambda: node.status()["offline"] == [f"orders-{lost}"], "its partition is offline")
        assert node.produce("orders", kept) is None
        node.stop()

    shutil.rmtree(tmp_path / "two")
    (tmp_path / "gone").rename(tmp_path / "two")
    with started(tmp_path) as node:  # with it again
        until(lambda: not node.status()["offline_folders"], "both folders are there")
        until(lambda: not node.status()["offline"], "nothing is offline")
        assert node.produce("orders", lost) is None
        node.stop()


def test_a_lost_disk_is_replaced_only_by_the_operators_word(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        create(node, "orders")
        lost = 1 if (node.two / "orders-1").exists() else 0
        until(lambda: "lie in another data folder" in node.log(), "the folders are told")
        node.stop()
    shutil.rmtree(node.two)
    node.two.mkdir()
    words = ("--ignore-formatted", "--standalone", "--set", node.log_dirs)
    formatted = run_command("format", *words)
    assert formatted.returncode == 0, formatted.stderr
    assert f"Formatted {node.two}" in formatted.stdout
    with started(tmp_path) as node:
        until(lambda: not node.status()["offline_folders"], "both folders are there")
        until(lambda: node.status()["offline"] == [f"orders-{lost}"], "nobody leads an empty log")
        assert node.produce("orders", 1 - lost) is None
        node.stop()
