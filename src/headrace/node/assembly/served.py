"""Which APIs a node serves, and on which kind of listener.

Clients are answered by the broker and by the controller behind it. A controller's own listener
answers Kafka's list for it, as far as it is served here, and is the only one on which nodes talk to
each other about the cluster. A connection that sends a request of an API for the other kind of
listener is closed, as by Apache Kafka. A node that is alone does not serve APIs that are only for
other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from headrace.node.assembly.controller_routing import ControllerRouting
from headrace.node.broker.handlers import HANDLERS as BROKER_HANDLERS
from headrace.node.controller.controller import Controller
from headrace.node.controller.handlers import HANDLERS as CONTROLLER_HANDLERS
from headrace.node.controller.quorum_requests import ask_quorum
from headrace.node.serving import envelopes
from headrace.node.serving.api import Api, Call, ClosesConnection
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation

# Between nodes: Vote, BeginQuorumEpoch, EndQuorumEpoch, AlterPartition, Envelope, FetchSnapshot,
# BrokerRegistration, BrokerHeartbeat, AllocateProducerIds, ControllerRegistration,
# AssignReplicasToDirs, UpdateRaftVoter.
NOT_FOR_CLIENTS = frozenset({52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
# The quorum answers these on every member; a client's requests are forwarded to the leader.
OF_THE_QUORUM = frozenset({52, 53, 54, 55, 59, 80, 81, 82})
FETCH = 1  # of the metadata log, where it comes by a controller's listener
# An operator's requests about other nodes: UnregisterBroker, AddRaftVoter, RemoveRaftVoter.
ABOUT_OTHER_NODES = frozenset({64, 80, 81})
# A test compares it with Kafka's definitions.
FOR_CONTROLLERS = frozenset(
    {17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 43, 44, 45, 46, 49, 50, 51, 55, 57, 60}
)

Line = tuple[int, int, int]  # of ApiVersions: API key, lowest and highest version


def served_apis(
    controllers: Collection[str], routing: ControllerRouting | None = None
) -> list[Api]:
    """`controllers` are the names of the listeners that are a controller's; mostly none. `routing`
    is that of a node with others; None: it is alone."""
    apis = (*BROKER_HANDLERS, *CONTROLLER_HANDLERS)
    if routing is not None:
        return _served_among_others(apis, frozenset(controllers), routing)
    alone = NOT_FOR_CLIENTS | ABOUT_OTHER_NODES
    served = [api for api in apis if api.messages.API_KEY not in alone]
    if not controllers:
        return served
    listeners = frozenset(controllers)
    return [
        api if api.messages.API_KEY in FOR_CONTROLLERS else not_on(api, listeners) for api in served
    ]


def _served_among_others(
    apis: Iterable[Api], listeners: frozenset[str], routing: ControllerRouting
) -> list[Api]:
    served = []
    for api in (*apis, envelopes.API):
        key = api.messages.API_KEY
        routed = routing.routed(api) if api.owner == "controller" else api
        if key in OF_THE_QUORUM:
            routed = on_these(routed, listeners, api.handle)
        if key in NOT_FOR_CLIENTS:
            if listeners:
                served.append(only_on(routed, listeners))
        elif key in FOR_CONTROLLERS | ABOUT_OTHER_NODES or key == FETCH:
            served.append(routed)
        else:
            served.append(not_on(routed, listeners))
    return served


def forwardable_apis() -> list[Api]:
    """The requests that may be inside an envelope: all that clients ask of the controller."""
    return [api for api in CONTROLLER_HANDLERS if api.messages.API_KEY not in NOT_FOR_CLIENTS]


def lines_of(apis: Iterable[Api]) -> list[Line]:
    return sorted(
        (
            api.messages.API_KEY,
            api.versions.start if api.advertised_from is None else api.advertised_from,
            api.versions[-1],
        )
        for api in apis
    )


def for_clients(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line[0] not in NOT_FOR_CLIENTS]


def for_controllers(lines: Iterable[Line], *, alone: bool = False) -> list[Line]:
    theirs = FOR_CONTROLLERS | NOT_FOR_CLIENTS | ABOUT_OTHER_NODES
    if not alone:
        theirs |= {FETCH}
    return [line for line in lines if line[0] in theirs]


def not_on(api: Api, listeners: frozenset[str]) -> Api:
    """Returns the API, refused on these listeners and served on all others."""
    return _limited(api, lambda listener: listener not in listeners)


def only_on(api: Api, listeners: frozenset[str]) -> Api:
    """Returns the API, served on these listeners only."""
    return _limited(api, lambda listener: listener in listeners)


def _limited(api: Api, is_served: Callable[[str], bool]) -> Api:
    name = api.messages.NAME

    def limited(inner: Callable[[Any, Any, Call], Any]) -> Callable[[Any, Any, Call], Any]:
        def handle(owner: Any, request: Any, call: Call) -> Any:
            if not is_served(call.session.listener):
                raise ClosesConnection(
                    f"{name}, which the listener {call.session.listener} does not serve"
                )
            return inner(owner, request, call)

        return handle

    large = api.handle_large
    return replace(
        api, handle=limited(api.handle), handle_large=None if large is None else limited(large)
    )


Handle = Callable[[Any, Any, Call], Any]


def on_these(api: Api, listeners: frozenset[str], theirs: Handle) -> Api:
    """Returns the API with another handler for requests on these listeners."""

    def by_listener(inner: Handle) -> Handle:
        def handle(owner: Any, request: Any, call: Call) -> Any:
            handler = theirs if call.session.listener in listeners else inner
            return handler(owner, request, call)

        return handle

    large = api.handle_large
    return replace(
        api,
        handle=by_listener(api.handle),
        handle_large=None if large is None else by_listener(large),
    )


def fetch_by_listener(api: Api, controller: Controller, listeners: frozenset[str]) -> Api:
    """Returns Fetch, which the quorum answers on these listeners and the broker on all others."""

    def fetch_metadata(owner: Any, request: Any, call: Call) -> Any:
        require_on_cluster(controller, call, Operation.CLUSTER_ACTION)
        return ask_quorum(controller, api.messages, request, call)

    return on_these(api, listeners, fetch_metadata)
