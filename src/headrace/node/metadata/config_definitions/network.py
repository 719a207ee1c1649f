"""The broker's settings of listeners, sockets and connections, and of single requests."""

from __future__ import annotations

from headrace.node.metadata.config_definitions.definition import INT_MAX, Definition
from headrace.node.metadata.config_definitions.rows import (
    CLUSTER_WIDE,
    PER_BROKER,
    at_least,
    integer,
    internal,
    listing,
    long,
    one_of,
    string,
    without_effect,
)

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# fmt: off
_LISTENERS = (
    listing("listeners", ("PLAINTEXT://:9092",), None,
        "Where the node listens: a list of NAME://HOST:PORT; an empty host is every address.",
        PER_BROKER),
    listing("advertised.listeners", None, None,
        "What clients are told to connect to, per listener, if it differs from listeners."),
    string("listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None,
        "Security protocol of each listener name.",
        PER_BROKER),
    string("inter.broker.listener.name", None, None,
        "Name of the listener that other brokers use."),
    string("security.inter.broker.protocol", "PLAINTEXT", one_of(*SECURITY_PROTOCOLS),
        "Security protocol between brokers, if inter.broker.listener.name is not set."),
)
_BOUNDS = (
    integer("socket.request.max.bytes", 100 * 1024**2, at_least(1),
        "Largest request; a client that announces a larger one is disconnected."),
    integer("max.connections", INT_MAX, at_least(0),
        "Most connections of this node at a time; more are turned away.", CLUSTER_WIDE),
    integer("max.connections.per.ip", INT_MAX, at_least(0),
        "Most connections from one address at a time; more are turned away.", CLUSTER_WIDE),
    string("max.connections.per.ip.overrides", "", None,
        "Other bounds for single addresses: a list of ADDRESS:COUNT.", CLUSTER_WIDE),
    integer("max.connection.creation.rate", INT_MAX, at_least(0),
        "Most new connections per second; a listener that is above it pauses.", CLUSTER_WIDE),
    long("queued.max.request.bytes", -1, None,
        "Most bytes of requests that have begun and are not complete, over all connections; who "
        "would pass it is disconnected. -1 is no limit."),
    long("connections.max.idle.ms", 600_000, None,
        "A connection without a request for so long is closed."),
    integer("fetch.max.bytes", 55 * 1024**2, at_least(1024),
        "Most bytes of records in one answer to a fetch."),
    integer("max.incremental.fetch.session.cache.slots", 1_000, at_least(0),
        "How many fetch sessions are remembered."),
)
_SOCKETS = (
    integer("socket.send.buffer.bytes", 100 * 1024, None,
        "SO_SNDBUF of client connections; -1 takes what was measured to be best on loopback and "
        "leaves it to the operating system elsewhere."),
    integer("socket.receive.buffer.bytes", 100 * 1024, None,
        "SO_RCVBUF of client connections; -1 takes what was measured to be best on loopback and "
        "leaves it to the operating system elsewhere."),
    integer("socket.listen.backlog.size", 50, at_least(1),
        "Connections that may wait to be accepted."),
)
_LOGINS = (
    integer("connection.failed.authentication.delay.ms", 100, at_least(0),
        "How long a connection whose authentication failed waits for its answer and its end."),
    long("connections.max.reauth.ms", 0, None,
        "A SASL session ends after so long unless the client authenticates again."),
)
_NO_EFFECT = (
    *without_effect("an answer never has more than 2,000",
        integer("max.request.partition.size.limit", 2_000, at_least(1),
            "Most partitions in one answer of DescribeTopicPartitions."),
    ),
    *without_effect("one event loop serves all connections, without threads or queues between",
        integer("num.network.threads", 3, at_least(1),
            "Threads that read requests and send answers.", CLUSTER_WIDE),
        integer("num.io.threads", 8, at_least(1),
            "Threads that work on requests.", CLUSTER_WIDE),
        integer("background.threads", 10, at_least(1),
            "Threads for housekeeping.", CLUSTER_WIDE),
        integer("queued.max.requests", 500, at_least(1),
            "Requests that may wait for a working thread."),
    ),
    *without_effect("waiting requests leave no traces to purge",
        integer("fetch.purgatory.purge.interval.requests", 1_000, None,
            "After so many fetches the waiting ones are tidied."),
        integer("producer.purgatory.purge.interval.requests", 1_000, None,
            "After so many produces the waiting ones are tidied."),
        integer("delete.records.purgatory.purge.interval.requests", 1, None,
            "After so many deletions of records the waiting ones are tidied."),
        integer("share.fetch.purgatory.purge.interval.requests", 1_000, None,
            "After so many share fetches the waiting ones are tidied."),
    ),
    *without_effect("a node of one makes no connections of its own",
        integer("request.timeout.ms", 30_000, None,
            "How long this node waits for the answer of another."),
        long("socket.connection.setup.timeout.ms", 10_000, None,
            "How long this node waits for a connection to another, the first time."),
        long("socket.connection.setup.timeout.max.ms", 30_000, None,
            "How long it waits at most after several attempts."),
    ),
    *without_effect("listeners open when the node is ready",
        listing("early.start.listeners", None, None,
            "Listeners that open before the authorizer is ready."),
    ),
    *internal(
        *without_effect("the node does not measure its start",
            long("server.max.startup.time.ms", 2**63 - 1, at_least(0),
                "A start that takes longer fails."),
        ),
    ),
)
# fmt: on

NETWORK: tuple[Definition, ...] = (*_LISTENERS, *_BOUNDS, *_SOCKETS, *_LOGINS, *_NO_EFFECT)
