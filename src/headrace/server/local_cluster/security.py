"""How the nodes of a secured cluster on this machine, and their delay services, log in.

Clients come by SASL_SSL, as to a node alone. Nodes have two listeners of their own on localhost:
NODES between brokers and CONTROLLER for the quorum, both SASL_SSL with PLAIN, for two users that no
client knows the passwords of. These are made anew at each start of the parent, kept in memory, and
handed to the nodes by their sockets: no file holds them, and nobody else is let in there. The user
of the nodes is a super user, that of the delay service an ordinary one (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.contract import delay_login
from headrace.metadata.config_definitions.authorizer import AUTHORIZER_CLASS, SUPER_USERS

NODES = "NODES"
CONTROLLER = "CONTROLLER"
CLIENTS = "SASL_SSL"
USER = "headrace-nodes"
MECHANISM = "PLAIN"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET_BYTES = 32
# The security settings that the parent adds to its other settings.
DECIDED = (
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "listener.security.protocol.map",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
)


@dataclass(slots=True)
class Secrets:
    """Passwords of one life of the cluster."""

    nodes: str = field(repr=False)
    delay: str = field(repr=False)


def new_secrets(randomness: Callable[[int], bytes]) -> Secrets:
    return Secrets(randomness(SECRET_BYTES).hex(), randomness(SECRET_BYTES).hex())


def settings_between_nodes(secrets: Secrets, given: Mapping[str, str]) -> dict[str, str]:
    """`given` are the settings of the security folder and of the person."""
    users = f'user_{USER}="{secrets.nodes}" user_{delay_login.USER}="{secrets.delay}"'
    login = f'{MODULE} required username="{USER}" password="{secrets.nodes}" {users};'
    settings = {
        "inter.broker.listener.name": NODES,
        "listener.security.protocol.map": ",".join(
            f"{name}:SASL_SSL" for name in (CLIENTS, NODES, CONTROLLER)
        ),
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.mechanism.controller.protocol": MECHANISM,
    }
    for name in (NODES, CONTROLLER):
        prefix = f"listener.name.{name.lower()}."
        settings[f"{prefix}sasl.enabled.mechanisms"] = MECHANISM
        settings[f"{prefix}{MECHANISM.lower()}.sasl.jaas.config"] = login
    if given.get(AUTHORIZER_CLASS):
        trusted = [given[SUPER_USERS]] if given.get(SUPER_USERS) else []
        settings[SUPER_USERS] = ";".join([*trusted, f"User:{USER}"])
    return settings


def delay_client(secrets: Secrets, given: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings for the delay service beside each node, which comes by NODES."""
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": MECHANISM,
        "sasl.username": delay_login.USER,
        "sasl.password": secrets.delay,
        "ssl.ca.location": given["ssl.truststore.location"],
    }
