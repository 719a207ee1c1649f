"""The effects that the quorum asks of its host, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.node.consensus.quorum.messages import Request, Response
from headrace.node.consensus.voters import VoterEndpoint


@dataclass(slots=True)
class Send:
    """Then call `answered(to, correlation_id, response)`, with None if no response came."""

    to: int  # a member's id; below 0 a bootstrap server, whose id is not known yet
    endpoints: tuple[VoterEndpoint, ...]
    request: Request
    correlation_id: int


@dataclass(slots=True)
class Reply:
    token: Any  # as it came with the request
    response: Response


@dataclass(slots=True)
class Flush:
    """The log has grown: flush it on another thread, then call `flushed`."""


@dataclass(slots=True)
class Elected:
    """This node leads. Its controller may decide once it has applied everything before `epoch`."""

    epoch: int


@dataclass(slots=True)
class Deposed:
    """This node leads no longer: what waits for a commit has an unknown outcome."""

    epoch: int  # that it led


@dataclass(slots=True)
class Truncated:
    """The records from `to_offset` on were removed; they were never committed."""

    to_offset: int


@dataclass(slots=True)
class Committed:
    high_watermark: int


@dataclass(slots=True)
class SnapshotInstalled:
    """The log now begins with the leader's snapshot: load it in place of what was applied."""

    end_offset: int


Effect = Send | Reply | Flush | Elected | Deposed | Truncated | Committed | SnapshotInstalled
