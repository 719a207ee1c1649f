"""Whole nodes in one process for stories; the simulator runs the same ones under faults."""

from headrace.node.simulator.whole_nodes import (
    CLIENTS,
    CLUSTER_ID,
    CONTROLLERS,
    FOLDER,
    Cluster,
    Member,
    voter,
)

__all__ = ["CLIENTS", "CLUSTER_ID", "CONTROLLERS", "FOLDER", "Cluster", "Member", "voter"]
