"""The address and the settings of a cluster: librdkafka's settings from all their sources.

Strongest first: `-X key=value`, `--bootstrap` or HEADRACE_BOOTSTRAP, the client-config file,
localhost:9092. The file has one `key=value` per line, `#` begins a comment.
The Java client's names for stores and logins are understood too (`java_names.py`); librdkafka
refuses settings that it does not know. For programs HEADRACE_CLIENT_CONFIG names the file.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from headrace.client.errors import (
    NOBODY_ANSWERS,
    ClientError,
    NoSuchTopic,
    explain,
    kafka_error,
    silent,
    unreachable,
)
from headrace.client.java_names import as_librdkafka

_Client = TypeVar("_Client", AdminClient, Producer, Consumer)

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_PORT = 9092

# librdkafka writes its problems to standard error by itself; we report them once, as a sentence.
# `-X debug=...` or `-X log_level=...` turns its log on again.
QUIET = "0"

# For programs librdkafka's log goes to this logger, which they configure.
LOG = logging.getLogger("headrace.client.librdkafka")
# While no broker answers, librdkafka logs it several times a second: the same line is repeated this
# seldom.
REPEATED_AFTER_S = 30.0
MOST_LINES = 100
# librdkafka asks on the connection to an address that it was given, and closes that one when it
# knows the broker's name: this is not an error, and it asks again by itself.
OF_NO_CONCERN = "Local: Broker handle destroyed without termination: retrying"

# For commands: librdkafka writes fatal errors to standard error at any log level.
NOWHERE = logging.getLogger("headrace.client.nowhere")
NOWHERE.addHandler(logging.NullHandler())
NOWHERE.propagate = False

# The bootstrap servers of a program's clients, if the program names none.
BOOTSTRAP_VARIABLE = "HEADRACE_BOOTSTRAP"
# A file with the settings of a secured cluster: certificates, user and password.
CLIENT_CONFIG_VARIABLE = "HEADRACE_CLIENT_CONFIG"

# The one setting that confluent_kafka reads itself; it refuses a text.
ONLY_ERRORS = "delivery.report.only.error"
# The types of librdkafka's settings; functions are callbacks such as `stats_cb` and `oauth_cb`.
Setting = str | int | float | bool | Callable[..., Any]

# How long a refused connection is retried before we report it: a node may just be starting.
PATIENCE_WHEN_REFUSED_S = 1.0


class _WorthALine(logging.Filter):
    """Drops lines that were logged lately (the "after ... ms" does not count) or need no action."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = record.getMessage().partition(" (after ")[0], time.monotonic()
        if text.endswith(OF_NO_CONCERN):
            return False
        if now - self._said.get(text, -REPEATED_AFTER_S) < REPEATED_AFTER_S:
            return False
        if len(self._said) >= MOST_LINES:
            self._said.clear()
        self._said[text] = now
        return True


LOG.addFilter(_WorthALine())


@dataclass(slots=True)
class ClientSettings:
    """Settings for librdkafka, `bootstrap.servers` among them, and how long to wait for answers.

    It is not a connection: each client that is made from it connects by itself.
    """

    settings: dict[str, str] = field(
        default_factory=lambda: {"bootstrap.servers": DEFAULT_BOOTSTRAP},
        repr=False,  # passwords are among them
    )
    timeout_s: float = 10.0
    callbacks: dict[str, Callable[..., Any]] = field(default_factory=dict)  # librdkafka's, by name
    quiet: bool = False  # for commands: librdkafka's log is dropped unless `-X debug=...` is given
    # Brokers that have not answered, though their cluster names them: others are asked first.
    silent: set[tuple[str, int]] = field(default_factory=set, repr=False, compare=False)

    @property
    def bootstrap(self) -> str:
        return self.settings["bootstrap.servers"]

    @property
    def is_secured(self) -> bool:
        """Whether the connection encrypts or logs in; then missing rights may hide resources."""
        return self.settings.get("security.protocol", "plaintext").lower() != "plaintext"

    def with_settings(self, **more: str | int | float | bool) -> dict[str, Any]:
        """The settings for one client; the user's settings win over `more` (`_` stands for `.`)."""
        merged: dict[str, Any] = {"client.id": "headrace"}
        if "debug" not in self.settings:
            merged["log_level"] = QUIET
        merged.update({name.replace("_", "."): value for name, value in more.items()})
        merged.update(self.settings)
        merged.update(self.callbacks)
        return merged

    def admin(self) -> AdminClient:
        return made(lambda: AdminClient(self.with_settings()))

    def producer(self, **more: str | int | float | bool) -> Producer:
        return made(lambda: Producer(self.with_settings(**more)))

    def consumer(self, **more: str | int | float | bool) -> Consumer:
        return made(lambda: Consumer(self.with_settings(**more)))


Connection = ClientSettings  # the older name, which programs of users import


def connected(
    given: str | ClientSettings | None, settings: Mapping[str, Setting] | None
) -> ClientSettings:
    """The cluster of a program's client: an address or settings, and settings that win over
    them."""
    if isinstance(given, ClientSettings):
        at = replace(given, settings=dict(given.settings), callbacks=dict(given.callbacks))
    else:
        at = ClientSettings(_from_environment())
        named = given or os.environ.get(BOOTSTRAP_VARIABLE)
        if named:
            at.settings["bootstrap.servers"] = named
    for name, value in (settings or {}).items():
        if callable(value):
            at.callbacks[name] = value
        else:
            at.settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return at


def _from_environment() -> dict[str, str]:
    settings = {"bootstrap.servers": DEFAULT_BOOTSTRAP}
    named = os.environ.get(CLIENT_CONFIG_VARIABLE)
    if named:
        settings.update(read_config_file(Path(named)))
    return settings


def program_settings(at: ClientSettings, defaults: Mapping[str, Setting]) -> dict[str, Any]:
    """All settings of one client of a program; librdkafka's log goes to Python's."""
    given: dict[str, Any] = {**defaults, **at.settings, **at.callbacks}
    if ONLY_ERRORS in given:
        given[ONLY_ERRORS] = str(given[ONLY_ERRORS]).lower() == "true"
    if at.quiet:
        logged = {} if "debug" in at.settings else {"logger": NOWHERE}
        return at.with_settings() | logged | given
    return {"client.id": "headrace", "logger": LOG} | given


class _AsksForMetadata(Protocol):
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any: ...


def made(make: Callable[[], _Client]) -> _Client:
    """A client of librdkafka; raises a sentence about the setting that it refuses."""
    try:
        return make()
    except KafkaException as failure:
        said = kafka_error(failure).str().strip().rstrip(".")
        advice = " (names are librdkafka's, as in linger.ms)" if said.startswith("No such") else ""
        raise ClientError(f"A client setting is wrong: {said}{advice}.") from failure


def connection(
    *,
    bootstrap: str | None = None,
    overrides: Mapping[str, str] | None = None,
    config_file: Path | None = None,
    timeout_s: float = 10.0,
) -> ClientSettings:
    settings = {"bootstrap.servers": DEFAULT_BOOTSTRAP}
    if config_file is not None:
        settings.update(read_config_file(config_file))
    if bootstrap:
        settings["bootstrap.servers"] = bootstrap
    settings.update(overrides or {})
    return ClientSettings(settings, timeout_s, quiet=True)


def read_config_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text("utf-8")
    except OSError as failure:
        raise ClientError(f"Cannot read {path}: {failure.strerror}.") from failure
    found = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line[0] in "#!":
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ClientError(f"Line {number} of {path} is not of the form key=value.")
        found[key.strip()] = value.strip()
    return as_librdkafka(found)


def reach(
    client: _AsksForMetadata, at: ClientSettings, *, topic: str | None = None
) -> ClusterMetadata:
    """The cluster's metadata, which proves that a broker answers. `topic` limits it to that topic.

    librdkafka retries a refused address until the time is over; a person who forgot to start the
    broker should know at once, so a refusal that lasts ends the wait early.
    """
    started = time.monotonic()
    while True:
        left = at.timeout_s - (time.monotonic() - started)
        try:
            metadata: ClusterMetadata = client.list_topics(
                topic, timeout=max(0.1, min(left, PATIENCE_WHEN_REFUSED_S))
            )
            return metadata
        except KafkaException as failure:
            error = kafka_error(failure)
            if error.code() not in NOBODY_ANSWERS:
                raise explain(error, at.bootstrap, topic=topic) from failure
            if at.is_secured:
                _require_entrance(at)  # librdkafka would retry for ever without a reason
            if _all_refuse(at.bootstrap):
                raise unreachable(at.bootstrap, command=at.quiet) from failure
            if left <= PATIENCE_WHEN_REFUSED_S:
                raise silent(at.bootstrap) from failure


def _require_entrance(at: ClientSettings) -> None:
    """Raise the refusal of our certificate or password by a broker that can be reached."""
    from headrace.client.wire import Wire  # it makes use of this module

    for address in addresses(at.bootstrap):
        with suppress(OSError):
            socket.create_connection(address, timeout=1).close()
            with Wire(at, address):
                return


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Host and port of each address in a bootstrap list."""
    found = []
    for word in bootstrap.split(","):
        address = word.strip().rpartition("://")[2]
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, str(DEFAULT_PORT)
        if not port.isdigit():
            raise ClientError(f"{word.strip()!r} is not an address; write HOST:PORT.")
        found.append((host.strip("[]"), int(port)))
    return found


def _all_refuse(bootstrap: str) -> bool:
    """Whether no address even accepts a connection."""
    for address in addresses(bootstrap):
        try:
            socket.create_connection(address, timeout=1).close()
            return False
        except OSError:
            continue
    return True


def wait_for_topic(
    client: _AsksForMetadata, at: ClientSettings, topic: str, *, unknown_s: float = 1.0
) -> int:
    """The number of partitions of a topic, once it has leaders.

    The request is a producer's, which creates the topic where the cluster does that; Apache Kafka
    answers "unknown" to the very request that creates it, so an unknown topic is asked for once
    more.
    """
    not_yet = {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}
    started = time.monotonic()
    while True:
        found = reach(client, at, topic=topic).topics[topic]
        if found.error is None and found.partitions:
            return len(found.partitions)
        waited = time.monotonic() - started
        code = found.error.code() if found.error else KafkaError.LEADER_NOT_AVAILABLE
        patience = unknown_s if code == KafkaError.UNKNOWN_TOPIC_OR_PART else at.timeout_s
        if code not in not_yet or waited > patience:
            refusal = explain(found.error or KafkaError(code), at.bootstrap, topic=topic)
            if isinstance(refusal, NoSuchTopic):
                advice = f"Create it with `headrace topics create {topic}`."
                raise NoSuchTopic(f"{refusal} {advice}")
            raise refusal
        time.sleep(0.05)
