"""The state of a cluster whose brokers stand still: told by those that answer."""

from __future__ import annotations

import pytest

from headrace.client.admin.cluster_status import read_status
from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.testing import Cluster
from tests.cluster.test_a_leader_dies import create


def test_status_is_told_without_the_first_broker_and_without_a_quorum() -> None:
    with Cluster(brokers=3) as cluster:
        create(cluster, "orders")
        cluster.cut(1)  # its cluster learns of that when its session is over
        # Nobody asks the one that stands still: the others have no quorum without each other.
        connection = ClientSettings({"bootstrap.servers": cluster.address(3)}, timeout_s=12.0)
        status = read_status(connection)
        assert [node.id for node in status.nodes] == [1, 2, 3] and status.no_controller is None
        cluster.cut(2)
        connection = ClientSettings({"bootstrap.servers": cluster.address(3)}, timeout_s=5.0)
        status = read_status(connection)
        assert not status.is_well and status.no_controller
        assert status.partitions == 3 and len(status.nodes) == 3
        with pytest.raises(ClientError):
            Reassignments(connection).elect_preferred_leaders()
        cluster.restore(2)
        cluster.restore(1)
