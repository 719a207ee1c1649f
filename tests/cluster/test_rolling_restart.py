"""A rolling restart of three brokers under a producer: every acknowledged record once, in order."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.node.process.folders.lock_holder import lock_holder
from tests.cluster.started import started
from tests.cluster.test_growth import headrace, read

RESTART = [sys.executable, "-m", "headrace", "cluster", "restart", "--rolling"]


class Sending:
    """An idempotent producer that sends one record after the other until it is asked to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self._errors: list[KafkaError] = []
        self._stopped = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
        self._producer = Producer(settings)
        self._topic = topic
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        value = 0
        while not self._stopped.is_set():
            self._producer.produce(self._topic, b"%d" % value, on_delivery=self._told)
            self._producer.poll(0.01)
            value += 1
        assert self._producer.flush(60) == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))

    def require_in_order(self, found: list[int]) -> None:
        assert not self._errors
        assert found == self.acknowledged == list(range(len(found)))


def test_three_brokers_restart_one_by_one_under_load(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--brokers", "3", "--no-console") as running:
        at = running.wait_until_ready().bootstrap
        admin = AdminClient({"bootstrap.servers": at})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
        assert lock_holder(str(data)) == running.pids[1], "the system knows who holds a folder"
        where = ("--data", str(data), "-b", at)
        planned = headrace("cluster", "restart", "--rolling", *where)
        assert sorted(planned["remaining"]) == [1, 2, 3] and not planned["executed"]
        with Sending(at, "orders") as sending:
            # Killed when the first broker stops; the same command goes on with the others.
            with subprocess.Popen(
                [*RESTART, *where, "--execute"], stderr=subprocess.PIPE, text=True
            ) as first:
                assert first.stderr is not None and "stops (process" in first.stderr.readline()
                first.kill()
            begun = json.loads((data / "headrace-restart.json").read_text())
            assert begun["before"] == {str(node): pid for node, pid in running.pids.items()}
            done = headrace("cluster", "restart", "--rolling", *where, "--execute")
            assert sorted(done["restarted"]) == [1, 2, 3]
        assert not (data / "headrace-restart.json").exists()
        sending.require_in_order(read(at, "orders", len(sending.acknowledged)))
        assert headrace("cluster", "status", "-b", at)["well"]
        running.stop()
