"""The server-side assignors of consumer groups (KIP-848).

An assignor is a pure function of the members' topics, the numbers of partitions and the present
assignment; it gives each member its partitions. The names are those that clients and settings use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.node.coordination.group.assignors.range import assign_ranges
from headrace.node.coordination.group.assignors.spec import Assignment, MemberSpec
from headrace.node.coordination.group.assignors.uniform import assign_uniformly, share_alike

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Assignment]]

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
# A shorter way to the same assignment if all members read all of the topics. Arguments: the current
# partitions of each member, and the numbers of partitions.
ALIKE: dict[str, Callable[[Mapping[str, Assignment], Mapping[bytes, int]], dict[str, Assignment]]]
ALIKE = {"uniform": share_alike}

__all__ = ["ALIKE", "ASSIGNORS", "Assignment", "Assignor", "MemberSpec"]
