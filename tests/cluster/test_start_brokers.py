"""`headrace start --brokers 3` as a person uses it: the screen, a death, Ctrl-C, the next start."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

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
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\n")
    assert "add --brokers 3" in refusal_of(data, "--config", str(file)), "it is for one node"
    plan = json.loads((data / "headrace-cluster.json").read_bytes())
    port = plan["nodes"][1]["controller_port"]
    # Another program has got the port of a controller meanwhile.
    with socket.create_server(("localhost", port)), started(data) as again:
        assert len(again.wait_until_ready().pids) == 3, "the folder knows how many"
        again.stop()


def test_every_broker_may_have_several_data_folders(tmp_path: Path) -> None:
    """Those of the first are named, the others' lie beside them."""
    folders = f"log.dirs={tmp_path}/data,{tmp_path}/more"
    with started(None, "--brokers", "3", "--set", folders) as running:
        address = running.wait_until_ready().bootstrap
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("orders", 4, 3)])["orders"].result(60)
        running.stop()
    for node in ("", "-2", "-3"):
        held = [
            len(list((tmp_path / f"{name}{node}").glob("orders-*"))) for name in ("data", "more")
        ]
        assert held == [2, 2], node
    assert "name the data folders once" in refusal_of(tmp_path / "data", "--set", folders)
    with started(tmp_path / "data") as again:
        assert len(again.wait_until_ready().pids) == 3, "the first folder knows the others"
        again.stop()
