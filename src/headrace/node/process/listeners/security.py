"""The security of each listener, from Kafka's settings: TLS, a login or both.

A setting may be given for one listener (`listener.name.NAME.ssl.keystore.location`), and those of
SASL for one mechanism of it (`listener.name.NAME.plain.sasl.jaas.config`); the most specific one
counts. `change` takes other settings while the node runs; they apply to new connections. Settings
that make no sense raise `BadValue` with one sentence, at the start and when they are altered
(`require_usable`, as in Apache Kafka). Stored settings that have become unusable change nothing.

Loaded only by a node that has such a listener.
"""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from socket import socket
from typing import Any

from headrace.installation import how_to_add
from headrace.node.assembly.node import Node
from headrace.node.metadata.config_definitions import BROKER_SETTINGS
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.metadata.config_definitions.security import OF_LISTENERS
from headrace.node.metadata.configs import layers
from headrace.node.metadata.image import MetadataImage
from headrace.node.process.listeners.addresses import Listener
from headrace.node.process.listeners.connection import Connection
from headrace.node.process.listeners.tls import Handshakes, TlsConnection
from headrace.node.process.listeners.tls_context import (
    BadTls,
    Tls,
    context_for_calls,
    nobody,
    tls_files,
)
from headrace.node.process.peers.peer_security import PLAIN, PeerSecurity, Secured, login_of
from headrace.node.serving.audit_lines import logins_to
from headrace.node.serving.authentication import jaas, plain, scram
from headrace.node.serving.authentication.exchange import Exchange
from headrace.node.serving.authentication.login import Login
from headrace.node.serving.authentication.mechanisms import Logins, Mechanisms
from headrace.node.serving.session import Session
from headrace.prometheus_text import Family

log = logging.getLogger(__name__)

OAUTHBEARER = "OAUTHBEARER"
LOGIN_MODULES = {
    plain.NAME: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(scram.TYPES, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
OPTION_OF_A_USER = "user_"


class ListenerSettings:
    """The settings of one listener, typed."""

    def __init__(self, given: Mapping[str, str], listener: Listener) -> None:
        self._given = given
        self._prefix = f"listener.name.{listener.name.lower()}."
        self.values = {name: self.value(name) for name in OF_LISTENERS}
        if listener.protocol == "SASL_SSL" and self.own("ssl.client.auth") is None:
            # A client that logs in needs no certificate, unless this listener itself asks for one
            # (KIP-684).
            self.values["ssl.client.auth"] = "none"

    def own(self, name: str) -> str | None:
        return self._given.get(self._prefix + name)

    def value(self, name: str, mechanism: str | None = None) -> Any:
        names = [self._prefix + name, name]
        if mechanism is not None:
            special = f"{mechanism.lower()}.{name}"
            names = [self._prefix + special, special, *names]
        definition = BROKER_SETTINGS[name]
        for each in names:
            if each in self._given:
                return definition.parse(self._given[each])
        return definition.default


@dataclass(slots=True)
class Entrance:
    """One listener's demands."""

    listener: Listener
    tls: Tls | None
    mechanisms: Mechanisms | None
    handshakes: Handshakes

    def connection(self, sock: socket, session: Session, address: str, now_ms: int) -> Connection:
        if self.mechanisms is not None:
            session.login = Login(self.mechanisms)
        if self.tls is None:
            return Connection(sock, session, address, now_ms)
        return TlsConnection(
            sock,
            session,
            address,
            now_ms,
            context=self.tls.context,
            handshakes=self.handshakes,
            on_shaken=self.tls.name_session if self.mechanisms is None else nobody,
        )


class Security:
    def __init__(
        self,
        listeners: Iterable[Listener],
        given: Mapping[str, str],
        *,
        handshakes: Handshakes,
        randomness: Callable[[int], bytes],
    ) -> None:
        self.logins = Logins()
        # Both are replaced by `attend`, before the first client is let in.
        self._lookup: scram.Lookup = lambda user, kind: None
        self._secret = randomness(32)
        self.handshakes = handshakes
        self._randomness = randomness
        self._listeners = [found for found in listeners if found.protocol != "PLAINTEXT"]
        self._own: dict[str, Entrance] = {}
        self._keys: dict[tuple[str, int], Any] = {}  # of tokens; read once for all listeners
        self._given = relevant(given)
        self.entrances = {
            found.name: self._entrance(found, self._given) for found in self._listeners
        }

    def attend(self, node: Node) -> None:
        """Users and live settings are those of this node's metadata from now on."""
        broker = node.broker
        self.logins.watchers.append(logins_to(node.auditor))

        def credentials(user: str, kind: int) -> scram.Credential | None:
            record = broker.image.scram_credentials.get((user, kind))
            if record is None:
                return None
            return scram.Credential(
                record.salt, record.stored_key, record.server_key, record.iterations
            )

        configs: Any = None

        def follow(image: MetadataImage) -> None:
            nonlocal configs
            if image.configs is not configs:
                configs = image.configs
                found = reversed(layers(broker.given, configs))
                self.change({name: text for each in found for name, text in each.settings.items()})

        self._lookup = credentials
        # The same after a restart, so that unknown users cannot be recognised by their salts.
        self._secret = hmac.digest(node.directory_id, b"salts of unknown users", "sha256")
        node.controller.on_committed.append(follow)
        node.controller.require_usable = self.require_usable

    def admit(self, listener: Listener, user: str, password: str) -> None:
        """A listener of the node's own, for one user whom no setting and no metadata knows."""
        kind = scram.SHA_256
        salt = self._randomness(scram.USUAL_SALT_BYTES)
        credential = scram.credential_of(
            kind, password, salt=salt, iterations=scram.USUAL_ITERATIONS
        )

        def begin() -> Exchange:
            return scram.Scram(
                kind,
                lambda name, _: credential if name == user else None,
                server_nonce=self._nonce(),
                secret=self._secret,
            )

        mechanisms = Mechanisms(begin={scram.MECHANISMS[kind]: begin}, logins=self.logins)
        self._own[listener.name] = Entrance(listener, None, mechanisms, self.handshakes)
        self.entrances = {**self.entrances, **self._own}

    def calls_to(self, listener: Listener, mechanism: str) -> PeerSecurity:
        """Returns how this node connects to the listeners of that name on other nodes. All nodes of
        a cluster are configured alike, so the settings are those of this node's listener of that
        name."""
        if listener.protocol == "PLAINTEXT":
            return PLAIN
        settings = ListenerSettings(self._given, listener)
        try:
            context = begin = None
            if listener.protocol in ("SSL", "SASL_SSL"):
                names = settings.value("ssl.endpoint.identification.algorithm")
                files = tls_files(settings.values)
                context = context_for_calls(files, checks_names=bool(names))
            if listener.protocol.startswith("SASL_"):
                if mechanism not in LOGIN_MODULES:
                    raise BadValue(
                        f"Nodes cannot log in to each other by {mechanism}: name another one in "
                        "sasl.mechanism.inter.broker.protocol."
                    )
                begin = login_of(mechanism, _jaas_options(mechanism, settings))
        except (BadTls, BadValue) as fault:
            raise BadValue(f"The listener {listener.name}: {fault}") from None
        return Secured(context, begin)

    def require_usable(self, given: Mapping[str, str]) -> None:
        """Raises BadValue if a listener could not be opened by these settings, or if its
        certificate had other names.

        Checks only listeners whose settings differ from the present ones.
        """
        wanted = relevant(given)
        for listener in self._listeners:
            if _concerning(listener, wanted) == _concerning(listener, self._given):
                continue
            tls, before = self._entrance(listener, wanted).tls, self.entrances[listener.name].tls
            if tls is None or before is None:
                continue
            try:
                tls.require_names_of(before)
            except BadTls as fault:
                raise BadValue(f"The listener {listener.name}: {fault}") from None

    def change(self, given: Mapping[str, str]) -> None:
        """Apply other settings while the node runs; unusable ones are logged and change nothing."""
        wanted = relevant(given)
        if wanted == self._given:
            return
        self._given = wanted
        try:
            entrances = {found.name: self._entrance(found, wanted) for found in self._listeners}
        except BadValue as fault:
            log.error("the new settings of the listeners are not used: %s", fault)
            return
        self.entrances = {**entrances, **self._own}
        log.info("new settings of the listeners are used from now on")

    def look(self) -> None:
        """Files of certificates may have changed."""
        for entrance in self.entrances.values():
            if entrance.tls is not None:
                entrance.tls.look()

    def families(self) -> Iterator[Family]:
        """Metrics for Prometheus."""
        for name, explanation, counted in (
            ("logins", "Logins that succeeded.", self.logins.succeeded),
            ("failed_logins", "Logins that failed.", self.logins.failed),
        ):
            samples = [({"mechanism": each}, number) for each, number in counted.items()]
            yield Family(f"headrace_{name}_total", "counter", explanation, samples)
        for name, explanation, number in (
            ("expired_logins", "Connections ended for want of a new login.", self.logins.expired),
            ("tls_handshakes", "Handshakes that succeeded.", self.handshakes.done),
            ("failed_tls_handshakes", "Handshakes that failed.", self.handshakes.failed),
        ):
            yield Family(f"headrace_{name}_total", "counter", explanation, [({}, number)])

    def _entrance(self, listener: Listener, given: Mapping[str, str]) -> Entrance:
        settings = ListenerSettings(given, listener)
        try:
            tls = None
            if listener.protocol in ("SSL", "SASL_SSL"):
                rules = settings.values["ssl.principal.mapping.rules"]
                tls = Tls(tls_files(settings.values), rules)
            mechanisms = None
            if listener.protocol.startswith("SASL_"):
                mechanisms = self._mechanisms(settings)
        except (BadTls, BadValue) as fault:
            raise BadValue(f"The listener {listener.name}: {fault}") from None
        return Entrance(listener, tls, mechanisms, self.handshakes)

    def _mechanisms(self, settings: ListenerSettings) -> Mechanisms:
        names: tuple[str, ...] = settings.values["sasl.enabled.mechanisms"]
        strange = [name for name in names if name not in LOGIN_MODULES]
        if strange or not names:
            raise BadValue(
                f"sasl.enabled.mechanisms must be some of {', '.join(LOGIN_MODULES)}; "
                f"{', '.join(strange) or 'none'} cannot be used."
            )
        values = settings.values
        return Mechanisms(
            begin={name: self._beginning(name, settings) for name in names},
            logins=self.logins,
            largest_bytes=values["sasl.server.max.receive.size"],
            failure_delay_ms=values["connection.failed.authentication.delay.ms"],
            max_reauth_ms={
                name: settings.value("connections.max.reauth.ms", name) for name in names
            },
        )

    def _beginning(self, name: str, settings: ListenerSettings) -> Callable[[], Exchange]:
        options = _jaas_options(name, settings)
        if name != OAUTHBEARER and settings.value("sasl.server.callback.handler.class", name):
            raise BadValue(f"sasl.server.callback.handler.class is not for {name}.")
        if name == plain.NAME:
            passwords = _passwords(options)
            return lambda: plain.Plain(passwords)
        if name == OAUTHBEARER:
            return _bearers(settings.values, options, self._keys)
        kind = scram.TYPES[name]
        return lambda: scram.Scram(
            kind, self._lookup, server_nonce=self._nonce(), secret=self._secret
        )

    def _nonce(self) -> str:
        return base64.b64encode(self._randomness(scram.NONCE_BYTES)).decode()


def relevant(given: Mapping[str, str]) -> dict[str, str]:
    """The settings that concern security, those of single listeners included."""
    return {
        name: text
        for name, text in given.items()
        if name.startswith("listener.name.")
        or name in OF_LISTENERS
        or name.endswith(".jaas.config")
    }


def _concerning(listener: Listener, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of `relevant` that do not belong to another listener."""
    prefix = f"listener.name.{listener.name.lower()}."
    return {
        name: text
        for name, text in given.items()
        if name.startswith(prefix) or not name.startswith("listener.name.")
    }


def _jaas_options(mechanism: str, settings: ListenerSettings) -> Mapping[str, str]:
    line = settings.value("sasl.jaas.config", mechanism)
    if not line:
        return {}
    try:
        module = jaas.parse(line)
    except jaas.MalformedJaas as fault:
        raise BadValue(f"The sasl.jaas.config of {mechanism} {fault}.") from None
    if module.name != LOGIN_MODULES[mechanism]:
        raise BadValue(
            f"The sasl.jaas.config of {mechanism} must be one of {LOGIN_MODULES[mechanism]}."
        )
    return module.options


def _passwords(options: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.removeprefix(OPTION_OF_A_USER): password
        for name, password in options.items()
        if name.startswith(OPTION_OF_A_USER) and name != OPTION_OF_A_USER
    }
    if not found:
        raise BadValue(
            'PLAIN needs users: give its sasl.jaas.config options of the form user_NAME="PASSWORD".'
        )
    return found


def _bearers(
    values: Mapping[str, Any],
    options: Mapping[str, str],
    kept: dict[tuple[str, int], Any],
) -> Callable[[], Exchange]:
    """`kept`: keys that were read before, so that a change of other settings does not read them
    again."""
    try:
        from headrace.node.process.listeners.token_keys import URL, TokenKeys
        from headrace.node.serving.authentication.oauthbearer import OAuthBearer
        from headrace.node.serving.authentication.tokens import TokenRules, Tokens
    except ModuleNotFoundError as missing:
        raise BadValue(how_to_add("OAUTHBEARER needs", missing.name, "secure")) from None
    if any(name.lower().startswith("unsecured") for name in options):
        raise BadValue("OAUTHBEARER without signatures (unsecured...) is not supported.")
    if not values[URL]:
        raise BadValue(f"OAUTHBEARER needs the keys of those who sign tokens: name {URL}.")
    rules = TokenRules(
        issuer=values["sasl.oauthbearer.expected.issuer"] or None,
        audiences=values["sasl.oauthbearer.expected.audience"],
        user_claim=values["sasl.oauthbearer.sub.claim.name"],
        skew_ms=values["sasl.oauthbearer.clock.skew.seconds"] * 1000,
    )
    source = values[URL], values["sasl.oauthbearer.jwks.endpoint.refresh.ms"]
    if source not in kept:
        kept[source] = TokenKeys(*source)
    tokens = Tokens(kept[source], rules)
    return lambda: OAuthBearer(tokens)
