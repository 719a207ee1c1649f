"""The settings of a node: a properties file, `--set`, `--data`, `--listen` and others.

`load_settings` gives `Settings`, or raises `CannotStart` with one sentence that names the file and
line. A setting for something that is not supported refuses to start and is never ignored. An
unknown name does the same; in a file only if it is similar to one of ours or Kafka's, because files
carry settings of plug-ins and of older releases, for which a warning is logged, as in Apache Kafka.
Options win over the file; of two lines with one name the last counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.edge.host_names import is_loopback
from headrace.near_names import did_you_mean, nearly
from headrace.node.assembly.node_settings import NodeSettings
from headrace.node.broker.cluster.endpoint import Endpoint
from headrace.node.consensus.voters import VoterEndpoint
from headrace.node.metadata.config_definitions import BROKER_SETTINGS
from headrace.node.metadata.config_definitions.authorizer import (
    AUTHORIZER_CLASS,
    OF_THE_AUTHORIZER,
    open_if_no_entry,
    super_users,
)
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.metadata.config_definitions.network import SECURITY_PROTOCOLS
from headrace.node.metadata.config_validation import (
    fault_between_settings,
    is_refused,
    listener_definition,
    not_supported_by_name,
)
from headrace.node.metadata.configs import broker_values
from headrace.node.process.listeners.addresses import (
    DEFAULT_CONTROLLER_PORT,
    Listener,
    advertised_addresses,
    parse_address,
    split_listeners,
)
from headrace.node.process.settings import java_properties
from headrace.node.process.settings.cluster_settings import (
    FOR_SEVERAL_CONTROLLERS,
    ClusterSettings,
    cluster_settings_of,
)

log = logging.getLogger(__name__)

OUR_OWN = "headrace."


class CannotStart(Exception):
    """The node cannot start: the message gives the reason and the remedy in one sentence."""


class UnusableData(CannotStart):
    """The data folder of a node is damaged: other nodes of its cluster can start without it."""


@dataclass(slots=True)
class Settings:
    node_id: int
    log_dir: str  # with the metadata log
    log_dirs: tuple[str, ...]  # where partitions are stored
    listeners: tuple[Listener, ...]  # for clients
    controllers: tuple[Listener, ...]  # for who talks to the controller; may be none
    advertised: dict[str, tuple[str, int]]  # by listener; port 0: the port that was bound
    controller_endpoint: VoterEndpoint
    # Passwords are among both, so they are not shown.
    values: dict[str, Any] = field(repr=False)  # every broker setting by Kafka's name, typed
    given: dict[str, str] = field(repr=False)  # those that were set explicitly, as text
    cluster: ClusterSettings
    metrics: tuple[str, int] | None = None
    # How the delay service beside this node logs in to brokers' own listener, as librdkafka's
    # settings; None: it uses a listener that the node opens for it.
    delay_client: dict[str, str] | None = field(default=None, repr=False)

    def for_node(self, ports: Mapping[str, int]) -> NodeSettings:
        """Returns the settings of the node. `ports` are those to which the listeners were bound."""
        return NodeSettings(
            node_id=self.node_id,
            folder=self.log_dir,
            log_dirs=self.log_dirs,
            values=self.values,
            given=self.given,
            endpoints=self._endpoints(self.listeners, ports),
            controller_endpoint=self.controller_endpoint._replace(
                port=self.controller_endpoint.port
                or ports.get(self.controller_endpoint.listener, 0)
            ),
            controllers=self._endpoints(self.controllers, ports),
            protocols={
                found.name: SECURITY_PROTOCOLS.index(found.protocol)
                for found in (*self.listeners, *self.controllers)
            },
            is_broker=self.cluster.is_broker,
            is_controller=self.cluster.is_controller,
            static_voters=self.cluster.static_voters,
            bootstrap=self.cluster.bootstrap,
        )

    def _endpoints(
        self, listeners: Iterable[Listener], ports: Mapping[str, int]
    ) -> dict[str, Endpoint]:
        told = {found.name: self.advertised[found.name] for found in listeners}
        return {name: Endpoint(host, port or ports[name]) for name, (host, port) in told.items()}


@dataclass(slots=True)
class Given:
    """One setting as it was written; `where` begins the sentence of an error about it."""

    text: str = field(repr=False)
    where: str
    in_a_file: bool = False


def load_settings(
    *,
    config_file: Path | str | None = None,
    overrides: Mapping[str, str] | Iterable[str] = (),
    data: Path | str | None = None,
    listen: str | None = None,
    metrics: str | None = None,
    insecure: bool = False,
    secure: Path | None = None,
) -> Settings:
    """`overrides` are KEY=VALUE texts or a mapping; `insecure` allows to listen beyond loopback.

    `secure` is a folder of `headrace security init`; all else wins over what is written there.
    """
    given: dict[str, Given] = {}
    if secure is not None:
        given.update(_read_security(secure))
    if config_file is not None:
        given.update(_read_file(Path(config_file)))
    given.update(_read_overrides(overrides))
    if data is not None:
        _require_same_folder(str(data), _read_overrides(overrides))
        given["log.dirs"] = Given(str(data), "--data: ")
    try:
        if listen is not None:
            host, port = parse_address(listen, "--listen")
            name = "PLAINTEXT" if secure is None else "SASL_SSL"
            address = Listener(name, host, port)
            given["listeners"] = Given(f"{name}://{address}", "--listen: ")
        return _settings(given, metrics=metrics, insecure=insecure)
    except BadValue as fault:
        raise CannotStart(str(fault)) from None


def _require_same_folder(data: str, overrides: dict[str, Given]) -> None:
    """`--data` takes precedence over a file, but may not contradict another option."""
    for name in ("log.dirs", "log.dir"):
        if name in overrides and overrides[name].text != data:
            raise CannotStart(
                f"--data says {data} and --set says {name}={overrides[name].text}; name the data "
                "folder once."
            )


def _read_security(folder: Path) -> dict[str, Given]:
    path = folder / "server.properties"
    if not path.exists():
        raise CannotStart(
            f"There is no {path}: `headrace security init` writes it, and all that belongs to it."
        )
    return _read_file(path)


def _read_file(path: Path) -> dict[str, Given]:
    try:
        entries = java_properties.parse(path.read_bytes())
    except OSError as problem:
        raise CannotStart(f"The file {path} cannot be read: {problem.strerror}.") from None
    except java_properties.MalformedProperties as fault:
        raise CannotStart(f"The file {path} cannot be understood: {fault}.") from None
    return {
        entry.name: Given(entry.value, f"{path}, line {entry.line}: ", in_a_file=True)
        for entry in entries
    }


def _read_overrides(overrides: Mapping[str, str] | Iterable[str]) -> dict[str, Given]:
    if isinstance(overrides, Mapping):
        return {name: Given(text, "") for name, text in overrides.items()}
    given: dict[str, Given] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            raise CannotStart(f"--set takes KEY=VALUE, not '{override}'.")
        given[name.strip()] = Given(text, "--set: ")
    return given


def _settings(given: dict[str, Given], *, metrics: str | None, insecure: bool) -> Settings:
    _agree_on_node_id(given)
    for name, setting in given.items():
        _require_understood(name, setting)
    texts = {name: setting.text for name, setting in given.items()}
    values = broker_values(texts, {})
    fault = fault_between_settings(values)
    if fault is not None:
        raise CannotStart(fault)
    _require_authorizer(given, values)
    clients, controllers = split_listeners(values)
    cluster = cluster_settings_of(values, texts, clients, controllers)
    if cluster.is_one_of_many:
        texts = {**FOR_SEVERAL_CONTROLLERS, **texts}
        values = broker_values(texts, {})
    if not insecure:
        _require_loopback((*clients, *controllers), texts)
    everyone = (*clients, *controllers)
    log_dirs = _data_folders(values)
    return Settings(
        node_id=values["node.id"],
        log_dir=_plain(values["metadata.log.dir"] or log_dirs[0]),
        log_dirs=log_dirs,
        listeners=clients,
        controllers=controllers,
        advertised=advertised_addresses(everyone, values["advertised.listeners"]),
        controller_endpoint=_controller_endpoint(controllers, values),
        values=values,
        given=texts,
        cluster=cluster,
        metrics=None if metrics is None else parse_address(metrics, "--metrics"),
    )


def _agree_on_node_id(given: dict[str, Given]) -> None:
    """Make `node.id` and Kafka's older name `broker.id` agree; if one is missing, the other is
    used."""
    node_id, broker_id = given.get("node.id"), given.get("broker.id")
    if node_id is not None and broker_id is not None:
        if node_id.text.strip() != broker_id.text.strip():
            raise CannotStart(
                f"{broker_id.where}broker.id is {broker_id.text} while node.id is "
                f"{node_id.text}; leave broker.id out."
            )
    elif node_id is not None:
        given["broker.id"] = node_id
    elif broker_id is not None:
        given["node.id"] = broker_id


def _require_understood(name: str, setting: Given) -> None:
    definition = BROKER_SETTINGS.get(name) or listener_definition(name)
    if definition is None and name in OF_THE_AUTHORIZER:
        return
    if definition is None:
        lacking = not_supported_by_name(name)
        if lacking is None:
            _require_no_slip(name, setting)
            return
    else:
        try:
            value = definition.parse(setting.text)
        except BadValue as fault:
            raise CannotStart(f"{setting.where}{fault}") from None
        if not is_refused(definition, value):
            return
        lacking = definition.why
    raise CannotStart(
        f"{setting.where}{name} cannot be honoured, because Headrace does not support "
        f"{lacking} yet; take it out to start without."
    )


def _require_no_slip(name: str, setting: Given) -> None:
    """A slip in `headrace.durability` or `min.insync.replicas` would protect nothing."""
    meant = nearly(name, BROKER_SETTINGS)
    if setting.in_a_file and meant is None and not name.startswith(OUR_OWN):
        log.warning("%sthere is no setting named %s; it is ignored", setting.where, name)
        return
    hint = f" Did you mean {meant}?" if meant else did_you_mean(name, BROKER_SETTINGS)
    raise CannotStart(f"{setting.where}There is no setting named {name}.{hint}")


def _require_authorizer(given: dict[str, Given], values: Mapping[str, Any]) -> None:
    for name, read in zip(OF_THE_AUTHORIZER, (super_users, open_if_no_entry), strict=True):
        setting = given.get(name)
        if setting is None:
            continue
        try:
            read(setting.text)
        except BadValue as fault:
            raise CannotStart(f"{setting.where}{fault}") from None
        if not values[AUTHORIZER_CLASS]:
            log.warning("%s%s means nothing without %s", setting.where, name, AUTHORIZER_CLASS)


def _require_loopback(listeners: tuple[Listener, ...], given: Mapping[str, str]) -> None:
    """Other machines may connect only if all bytes are encrypted and every client authenticates."""
    for listener in listeners:
        if is_loopback(listener.host) or listener.protocol == "SASL_SSL":
            continue
        own = f"listener.name.{listener.name.lower()}.ssl.client.auth"
        lacking = "nothing is encrypted and clients need no password"
        if listener.protocol == "SSL":
            if given.get(own, given.get("ssl.client.auth", "none")).strip() == "required":
                continue
            lacking = "clients need no certificate (ssl.client.auth=required)"
        elif listener.protocol == "SASL_PLAINTEXT":
            lacking = "nothing is encrypted"
        raise CannotStart(
            f"Listening on {listener} lets other machines in, and {lacking}: start with --secure "
            "(`headrace security init` makes the files for it), listen on localhost, or give "
            "--insecure if every client that reaches this port may do everything."
        )


def _data_folders(values: Mapping[str, Any]) -> tuple[str, ...]:
    named: tuple[str, ...] = values["log.dirs"] or values["log.dir"]
    folders = tuple(_plain(path) for path in named if path)
    if not folders:
        raise CannotStart("log.dirs names no data folder.")
    for path in folders:
        if folders.count(path) > 1:
            raise CannotStart(f"log.dirs names {path} twice.")
    return folders


def _plain(path: str) -> str:
    return path.rstrip("/") or "/"


def _controller_endpoint(
    controllers: tuple[Listener, ...], values: Mapping[str, Any]
) -> VoterEndpoint:
    """The listener of this node in the quorum's records; opened only if it is in `listeners`."""
    if controllers:
        listener = controllers[0]
        return VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
    name = next(iter(values["controller.listener.names"]), "CONTROLLER")
    return VoterEndpoint(name.upper(), "localhost", DEFAULT_CONTROLLER_PORT)
