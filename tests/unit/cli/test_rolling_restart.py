"""The order of a rolling restart, what it waits for, and what a second command goes on with."""

from __future__ import annotations

from headrace.cli.cluster.rolling_restart import Restart, only_there, order_of, reasons_to_wait
from headrace.client.admin.cluster_status import ClusterStatus, NodeStatus
from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.records import TopicPartition

ORDERS = [TopicPartition("orders", number) for number in range(4)]


def node(number: int, *, lag: int | None = 0, fenced: bool = False) -> NodeStatus:
    roles = ["broker", "controller"]
    return NodeStatus(number, "one:9092", None, roles, fenced, metadata_lag=lag)


def status(*nodes: NodeStatus, **more: object) -> ClusterStatus:
    return ClusterStatus("c", list(nodes), 2, 1, 9, [1, 2, 3], [], **more)  # type: ignore[arg-type]


def test_the_active_controller_is_the_last_one() -> None:
    begun = Restart(10, {1: 11, 2: 12, 3: 13})
    begun.look({1: 11, 2: 12, 3: 13})
    assert order_of(begun, 2) == [1, 3, 2]
    assert order_of(begun, None) == [1, 2, 3]


def test_a_broker_is_done_when_another_process_has_its_folder() -> None:
    begun = Restart(10, {1: 11, 2: 12, 3: 13})
    begun.look({1: 21, 2: 12, 3: None})
    assert begun.done == [1], "broker 3 has stopped, and is not back"
    assert order_of(begun, 2) == [3, 2]


def test_no_broker_is_stopped_before_all_are_well() -> None:
    assert reasons_to_wait(status(node(1), node(2), node(3))) == []
    found = reasons_to_wait(
        status(
            node(1),
            node(2, lag=None),
            node(3, fenced=True),
            under_replicated=ORDERS,
            moving=ORDERS[:1],
        )
    )
    assert found == [
        "the quorum does not hear of controller 2",
        "broker 3 is not back yet",
        "4 partitions with a replica that is not in sync (orders-0, orders-1, orders-2, ...)",
        "1 partition being moved (orders-0)",
    ]


def test_partitions_that_are_not_available_while_a_broker_restarts() -> None:
    partitions = [
        PartitionReplicas(ORDERS[0], 1, [1, 2], [1, 2]),
        PartitionReplicas(ORDERS[1], 1, [1, 2], [1]),
        PartitionReplicas(ORDERS[2], 2, [2], [2]),
    ]
    assert only_there(1, partitions) == [ORDERS[1]]
