"""The controllers that a node's settings name: its static voters, or where to ask for the quorum.

`controller.quorum.voters` is a fixed set, ID@HOST:PORT, of a quorum with kraft.version 0; such a
voter has no directory id. `controller.quorum.bootstrap.servers` is a list of HOST:PORT of some
controllers; the voters are then in the metadata log (KIP-853).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.metadata.config_definitions.definition import BadValue

STATIC_VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"

_ADDRESS = r"(?:\[(?P<six>[^]]+)\]|(?P<host>[^:@\[\]/]+)):(?P<port>[0-9]{1,5})"
_VOTER = re.compile(rf"(?P<id>[0-9]+)@{_ADDRESS}")
_SERVER = re.compile(_ADDRESS)
HIGHEST_ID = 2**31 - 1
HIGHEST_PORT = 65_535


def static_voters(entries: Iterable[str], listener: str) -> tuple[Voter, ...]:
    """`listener` is the first of `controller.listener.names`: the one that nodes use to reach
    controllers."""
    voters: dict[int, Voter] = {}
    for entry in entries:
        found = _VOTER.fullmatch(entry.strip())
        if found is None or int(found["id"]) > HIGHEST_ID or int(found["port"]) > HIGHEST_PORT:
            raise BadValue(f"{STATIC_VOTERS} must be a list of ID@HOST:PORT, not '{entry}'.")
        voter = Voter(int(found["id"]), endpoints=(_endpoint(found, listener),))
        if voter.id in voters:
            raise BadValue(f"{STATIC_VOTERS} names the controller {voter.id} twice.")
        voters[voter.id] = voter
    return tuple(voters.values())


def bootstrap_endpoints(entries: Iterable[str], listener: str) -> tuple[VoterEndpoint, ...]:
    endpoints = []
    for entry in entries:
        found = _SERVER.fullmatch(entry.strip())
        if found is None or int(found["port"]) > HIGHEST_PORT:
            raise BadValue(f"{BOOTSTRAP_SERVERS} must be a list of HOST:PORT, not '{entry}'.")
        endpoints.append(_endpoint(found, listener))
    return tuple(endpoints)


def _endpoint(found: re.Match[str], listener: str) -> VoterEndpoint:
    return VoterEndpoint(listener, found["six"] or found["host"], int(found["port"]))
