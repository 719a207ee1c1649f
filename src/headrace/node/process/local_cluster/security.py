"""How the nodes of a cluster on this machine, and their delay services, log in to each other.

The parent makes passwords at each start, keeps them in memory, and passes them to the nodes over
their sockets: no file holds them.

- In every cluster the controllers' listener asks for a login, so that no other program on the
  machine can vote, register a broker or change an ISR (docs/decisions/0034). A user who maps the
  listener in `listener.security.protocol.map` decides this instead, and `--controller-listen` with
  `--insecure` leaves the login out.
- In a secured cluster (`--secure`) clients connect by SASL_SSL, as to a node alone. Nodes have two
  listeners of their own on localhost: NODES between brokers and CONTROLLER for the quorum, both
  SASL_SSL with PLAIN. The user of the nodes is a super user, that of the delay service an ordinary
  one (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.node.metadata.config_definitions.authorizer import AUTHORIZER_CLASS, SUPER_USERS
from headrace.node.metadata.config_definitions.network import SECURITY_PROTOCOLS
from headrace.wire.contract import delay_login

NODES = "NODES"
CONTROLLER = "CONTROLLER"
CLIENTS = "SASL_SSL"
USER = "headrace-nodes"
MECHANISM = "PLAIN"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET_BYTES = 32
PROTOCOLS = "listener.security.protocol.map"
# The security settings that the parent adds to its other settings.
DECIDED = (
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    PROTOCOLS,
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


def settings_of_controllers(secrets: Secrets, given: Mapping[str, str]) -> dict[str, str]:
    """A login on the controllers' listener of a cluster without `--secure`.

    Returns nothing if `given` maps this listener to a protocol of the user's own: Apache Kafka's
    nodes join such a cluster.
    """
    mapped = given.get(PROTOCOLS, "")
    names = [entry.partition(":")[0].strip().upper() for entry in mapped.split(",")]
    if CONTROLLER in names:
        return {}
    others = mapped or ",".join(f"{name}:{name}" for name in SECURITY_PROTOCOLS)
    settings = {
        PROTOCOLS: f"{others},{CONTROLLER}:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": MECHANISM,
    }
    return settings | _login_on(CONTROLLER, _login(secrets)) | _trusted_nodes(given)


def settings_of_open_controllers(given: Mapping[str, str]) -> dict[str, str]:
    """No login on the controllers' listener: nodes that this parent has not started join
    (`--controller-listen` with `--insecure`)."""
    mapped = given.get(PROTOCOLS, "")
    if CONTROLLER in [entry.partition(":")[0].strip().upper() for entry in mapped.split(",")]:
        return {}
    others = mapped or ",".join(f"{name}:{name}" for name in SECURITY_PROTOCOLS)
    return {PROTOCOLS: f"{others},{CONTROLLER}:PLAINTEXT"}


def settings_between_nodes(secrets: Secrets, given: Mapping[str, str]) -> dict[str, str]:
    """`given` are the settings of the security folder and of the person."""
    login = _login(secrets)
    settings = {
        "inter.broker.listener.name": NODES,
        PROTOCOLS: ",".join(f"{name}:SASL_SSL" for name in (CLIENTS, NODES, CONTROLLER)),
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.mechanism.controller.protocol": MECHANISM,
    }
    for name in (NODES, CONTROLLER):
        settings |= _login_on(name, login)
    return settings | _trusted_nodes(given)


def _login(secrets: Secrets) -> str:
    users = f'user_{USER}="{secrets.nodes}" user_{delay_login.USER}="{secrets.delay}"'
    return f'{MODULE} required username="{USER}" password="{secrets.nodes}" {users};'


def _login_on(listener: str, login: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    return {
        f"{prefix}sasl.enabled.mechanisms": MECHANISM,
        f"{prefix}{MECHANISM.lower()}.sasl.jaas.config": login,
    }


def _trusted_nodes(given: Mapping[str, str]) -> dict[str, str]:
    """The nodes' user as a super user, where rights are checked."""
    if not given.get(AUTHORIZER_CLASS):
        return {}
    trusted = [given[SUPER_USERS]] if given.get(SUPER_USERS) else []
    return {SUPER_USERS: ";".join([*trusted, f"User:{USER}"])}


def delay_client(secrets: Secrets, given: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings for the delay service beside each node, which comes by NODES."""
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": MECHANISM,
        "sasl.username": delay_login.USER,
        "sasl.password": secrets.delay,
        "ssl.ca.location": given["ssl.truststore.location"],
    }
