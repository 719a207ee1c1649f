"""Which APIs a node serves, and on which kind of listener.

Clients are answered by the broker and by the controller behind it. A controller's own listener
answers Kafka's list for it, as far as it is served here; who asks for anything else there is sent
away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from headrace.broker.handlers import HANDLERS as BROKER_HANDLERS
from headrace.controller.handlers import HANDLERS as CONTROLLER_HANDLERS
from headrace.serving.api import Api, Call, Refused

# For other brokers, of which there are none yet.
# AlterPartition, BrokerRegistration, BrokerHeartbeat, AllocateProducerIds, AssignReplicasToDirs.
NOT_FOR_CLIENTS = frozenset({56, 62, 63, 67, 73})
# A test compares it with Kafka's definitions.
FOR_CONTROLLERS = frozenset(
    {17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 43, 44, 45, 46, 49, 50, 51, 55, 57, 60}
)

Line = tuple[int, int, int]  # of ApiVersions: API key, lowest and highest version


def served_apis(controllers: Collection[str]) -> list[Api]:
    """`controllers` are the names of the listeners that are a controller's; mostly none."""
    apis = (*BROKER_HANDLERS, *CONTROLLER_HANDLERS)
    served = [api for api in apis if api.messages.API_KEY not in NOT_FOR_CLIENTS]
    if not controllers:
        return served
    listeners = frozenset(controllers)
    return [
        api if api.messages.API_KEY in FOR_CONTROLLERS else not_on(api, listeners) for api in served
    ]


def lines_of(apis: Iterable[Api]) -> list[Line]:
    return sorted(
        (
            api.messages.API_KEY,
            api.versions.start if api.advertised_from is None else api.advertised_from,
            api.versions[-1],
        )
        for api in apis
    )


def for_controllers(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line[0] in FOR_CONTROLLERS]


def not_on(api: Api, listeners: frozenset[str]) -> Api:
    """The same API for everybody but those who come by these listeners."""
    inner, name = api.handle, api.messages.NAME

    def handle(owner: Any, request: Any, call: Call) -> Any:
        if call.session.listener in listeners:
            raise Refused(f"{name}, which the listener {call.session.listener} does not serve")
        return inner(owner, request, call)

    return replace(api, handle=handle)
