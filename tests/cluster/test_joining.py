"""From one node to three: nodes join by `--join`, vote, get replicas, with real processes."""

from __future__ import annotations

import signal
from pathlib import Path

from headrace.node.process.local_cluster.plan import free_ports
from tests.cluster.started import refusal_of, started
from tests.cluster.test_growth import headrace, quorum_of, read, replicas_of, write

RECORDS = 200


def test_one_node_becomes_three(tmp_path: Path) -> None:
    ports = free_ports(3)
    opening = ("--controller-listen", f"localhost:{ports[0]}", "--insecure", "--no-console")
    with started(tmp_path / "1", *opening, listen="localhost:0") as first:
        at = first.wait_until_ready().bootstrap
        write(at, "orders", range(RECORDS))
        second = ("--join", at, "--controller-listen", f"localhost:{ports[1]}", "--no-console")
        third = ("--join", at, "--controller-listen", f"localhost:{ports[2]}", "--no-console")
        with started(tmp_path / "2", *second, listen="localhost:0") as two:
            assert two.wait_until_ready().ready["node"] == 2
            with started(tmp_path / "3", *third, listen="localhost:0") as three:
                assert three.wait_until_ready().ready["node"] == 3
                for node in (2, 3):
                    where = f"localhost:{ports[node - 1]}"
                    words = ("add-voter", str(node), "--at", where, "--execute", "-b", at)
                    headrace("cluster", *words)
                assert [voter.id for voter in quorum_of(at).voters] == [1, 2, 3]
                headrace("cluster", "raise-replication", "--all", "3", "-b", at)
                assert all(len(each.isr) == 3 for each in replicas_of(at))
                assert "has a node 2 already" in refusal_of(
                    tmp_path / "4", "--join", at, "--node-id", "2"
                )
                three.process.send_signal(signal.SIGINT)
                three.process.communicate()
            # Without --join: the folder knows its cluster, and the node its number.
            with started(tmp_path / "3", "--no-console", listen="localhost:0") as three:
                assert three.wait_until_ready().ready["node"] == 3
                assert read(at, "orders", RECORDS) == list(range(RECORDS))
