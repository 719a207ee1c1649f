"""One running node: the pure node with its loop, listeners, flusher and metrics around it.

`Server(...)` opens everything or raises `CannotStart` with one sentence; `serve` runs until `stop`
is called (from any thread or a signal), then accepts no more connections, answers waiting requests,
flushes, and writes the clean-shutdown file. `main.py` runs it for the command line,
`headrace.testing` in a thread.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace.environment import Now
from headrace.node.assembly.node import Node
from headrace.node.assembly.node_settings import NodeSettings
from headrace.node.broker.cluster.endpoint import Endpoint
from headrace.node.broker.folders.identity import UnusableFolder
from headrace.node.broker.records.lost_acknowledgements import take_back
from headrace.node.consensus.metadata_recovery import UnusableMetadata
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.metadata.config_validation import connections_by_address
from headrace.node.metadata.configs import layers
from headrace.node.metadata.image import MetadataImage
from headrace.node.process import garbage
from headrace.node.process.background.background_processes import BackgroundProcesses
from headrace.node.process.clock import Clock, SystemClock
from headrace.node.process.flusher import ClosingFlushes, Flusher, say_how_far
from headrace.node.process.folders.folder_format import format_folder, levels_of
from headrace.node.process.folders.folder_locks import FolderLocks, refused_start, space_of
from headrace.node.process.folders.real_disk import RealDisk, raise_open_files_limit
from headrace.node.process.listeners.addresses import Listener as ListenerAddress
from headrace.node.process.listeners.connection_limits import (
    ConnectionLimits,
    settings_of_listeners,
)
from headrace.node.process.listeners.listener import Buffers, Door, Listener
from headrace.node.process.loop import Loop
from headrace.node.process.metrics.metrics import request_families
from headrace.node.process.metrics.node_families import node_families
from headrace.node.process.poller import Poller, best_poller
from headrace.node.process.settings.settings import CannotStart, Settings, UnusableData
from headrace.prometheus_text import Family
from headrace.wire.contract import delay_login
from headrace.wire.protocol.errors import KafkaError

if TYPE_CHECKING:
    from headrace.node.process.background.delay_process import DelayProcess
    from headrace.node.process.listeners.security import Security
    from headrace.node.process.metrics.metrics_endpoint import MetricsEndpoint
    from headrace.node.process.peers.peers import Peers

log = logging.getLogger(__name__)

# The rest is for the poller, checkpoints and others.
SHARE_OF_DESCRIPTORS_FOR_CONNECTIONS = 0.55
SHARE_OF_DESCRIPTORS_FOR_SEGMENTS = 0.4
FAREWELL_TURNS = 20
# Only the node's own child process uses this listener; it is not advertised to clients.
DELAY_LISTENER = "HEADRACE_DELAY"


class DiskFailed(Exception):
    """Work on the disk failed while the node was running; the message gives the reason."""


class Server:
    def __init__(
        self, settings: Settings, *, clock: Clock | None = None, poller: Poller | None = None
    ) -> None:
        self.settings = settings
        self.disk = RealDisk()
        self.now = Now(0, 0)
        self.clock = clock or SystemClock()
        self.clock.read(self.now)
        descriptors = raise_open_files_limit()
        with ExitStack() as undo:
            self._locks = FolderLocks(settings.log_dir, settings.log_dirs)
            undo.callback(self._locks.release)
            self.listeners = open_listeners(settings, undo)
            self.flusher = Flusher()
            undo.callback(self.flusher.stop)
            self.background = BackgroundProcesses()
            self.security = self._open_security()
            self.peers = self._open_peers()  # None: a cluster of one
            self.node = self._open_node(descriptors)
            undo.pop_all()  # from here on `serve` ends what was begun
        self.loop = Loop(
            poller or best_poller(),
            self.clock,
            self.now,
            self.node.dispatch,
            self.node.purgatory,
            self._end_turn,
            buffer_is_free=self.node.durability.buffer_is_free,
            work=self.node.work,
            most_held_bytes=most_held_bytes(settings.values),
        )
        if self.peers is not None:
            self.peers.attend(self.loop)
            self.node.attend_to_refusals(self.peers.refuses)
        self.background.attend(self.loop)
        self.loop.on_unreadable_file = self.node.durability.folder_failures.met
        self.loop.call_when_readable(self.flusher.wake_up, self._bell_rang)
        values = settings.values
        buffers = Buffers(values["socket.send.buffer.bytes"], values["socket.receive.buffer.bytes"])
        self._connections_possible = int(descriptors * SHARE_OF_DESCRIPTORS_FOR_CONNECTIONS)
        self.door = Door(self.loop, self.listeners, self._limits(), buffers, self.security)
        self.door.on_left = self.node.controller.sessions.hung_up
        self.node.controller.on_committed.append(self._limit_connections)
        if self.security is not None:
            self._attend_security(self.security)
        self.metrics: MetricsEndpoint | None = None
        self.delay: DelayProcess | None = None
        self._stop_asked = False
        self._stop_at_once = False

    def _open_node(self, descriptors: int) -> Node:
        settings = self.settings
        try:
            if self.peers is not None and settings.cluster.may_begin_alone:
                self._format_if_new()
            return Node(
                self.disk,
                self._node_settings(),
                self.now,
                randomness=os.urandom,
                submit=self.flusher.submit,
                space=space_of,
                open_files=int(descriptors * SHARE_OF_DESCRIPTORS_FOR_SEGMENTS),
                stopwatch=perf_counter_ns if settings.metrics is not None else None,
                request_clock=perf_counter_ns,
                compaction=self.background.cleaner,
                scrub=self.background.scrubber,
                together=ClosingFlushes(lambda: self.node.partitions.count, say_how_far),
                peers=self.peers,
            )
        except (UnusableFolder, UnusableMetadata) as refusal:
            raise UnusableData(str(refusal)) from None
        except (OSError, KafkaError) as refusal:
            raise UnusableData(refused_start(settings.log_dir, refusal)) from refusal

    def _format_if_new(self) -> None:
        """A controller that others may join begins its cluster by itself, as one that is alone."""
        format_folder(
            self.disk,
            self.settings,
            cluster_id=None,
            standalone=True,
            controllers=None,
            levels=levels_of({}),
            randomness=os.urandom,
            wall_ms=self.now.wall_ms,
        )

    def _node_settings(self) -> NodeSettings:
        settings = self.settings
        found = settings.for_node({listener.name: listener.port for listener in self.listeners})
        found.failed_folders = self._locks.failed
        if settings.values["headrace.first.users"]:
            from headrace.node.process.settings.first_users import read_first_users

            try:
                found.first_users = read_first_users(settings.values["headrace.first.users"])
            except BadValue as fault:
                raise CannotStart(str(fault)) from None
        return found

    def _open_security(self) -> Security | None:
        """None if no listener asks for TLS or a login: then nothing of it is loaded."""
        everyone = (*self.settings.listeners, *self.settings.controllers)
        called = self.settings.cluster.controller_protocol
        if {called, *(listener.protocol for listener in everyone)} == {"PLAINTEXT"}:
            return None
        from headrace.node.process.listeners.security import Security
        from headrace.node.process.listeners.tls import Handshakes

        try:
            return Security(
                everyone,
                self.settings.given,
                handshakes=Handshakes(lambda: self.loop.turns),
                randomness=os.urandom,
            )
        except BadValue as fault:
            raise CannotStart(str(fault)) from None

    def _open_peers(self) -> Peers | None:
        if self.settings.cluster.is_alone:
            return None
        from headrace.node.process.peers.peers import peers_of

        return peers_of(self.settings, self.security)

    def _attend_security(self, security: Security) -> None:
        from headrace.node.process.listeners.tls_context import LOOK_EVERY_MS

        security.attend(self.node)
        self.loop.timers.every(LOOK_EVERY_MS, security.look, self.now.monotonic_ms)

    def _limits(self) -> ConnectionLimits:
        broker = self.node.broker
        given = [layer.settings for layer in layers(broker.given, broker.image.configs)]
        names = [listener.name for listener in self.listeners]
        return limits_of(
            broker.values,
            self._connections_possible,
            settings_of_listeners(given, names, "max.connections"),
            settings_of_listeners(given, names, "max.connection.creation.rate"),
        )

    def _limit_connections(self, image: MetadataImage) -> None:
        self.door.change_limits(self._limits())
        self.door.keeper.follow(image.client_quotas)

    @property
    def address(self) -> str:
        """The address of the first listener for a client on this machine; for a node that is only a
        controller, that of its controllers' listener."""
        told = self.node.settings
        host, port = {**told.controllers, **self.node.broker.endpoints}[self.listeners[0].name]
        return f"{host}:{port}"

    def open(self, *, own_process: bool = True) -> None:
        """Join the cluster and let clients in; a process of our own is tuned for it.

        Returns early if `stop` is called: a node may wait long for the others of its quorum.
        """
        if self.peers is not None:
            # Its quorum needs this node's controller before the node can be ready for clients.
            self._begin_timers()
            self.door.open([listener.name for listener in self.settings.controllers])
            self.node.join(self.loop.timers.once)
        while not self.node.ready:
            self.loop.turn(self.loop.wait_ms())
            if self._has_failed():
                self.give_up()
                raise self._failure()
            self._require_membership()
            if self.is_stopping:
                return
        if self.peers is None:
            self._begin_timers()
        if self.settings.metrics is not None:
            self._serve_metrics(*self.settings.metrics)
        if own_process:
            self._collect_garbage_when_quiet()
        self.door.open()

    def _begin_timers(self) -> None:
        for period_ms, do in self.node.timers():
            self.loop.timers.every(period_ms, do, self.now.monotonic_ms)

    def _collect_garbage_when_quiet(self) -> None:
        garbage.collect_and_freeze()
        partitions, loop, now = self.node.broker.partitions, self.loop, self.now
        quiet = garbage.QuietCollection(lambda: partitions.count)
        loop.timers.every(
            garbage.LOOK_EVERY_MS,
            lambda: quiet.look(now.monotonic_ms - loop.asked_at_ms),
            now.monotonic_ms,
        )

    def start_services(self) -> None:
        """The processes that run beside a node, started when they are needed."""
        if self.settings.values["headrace.delay.service"] == "off":
            return
        if not self.settings.cluster.is_broker:
            return
        from headrace.node.process.background.delay_process import DelayProcess, delay_command

        settings = self.settings
        address, environment = self.address, None
        if settings.delay_client is not None:
            point = self.node.broker.endpoints[settings.cluster.broker_listener or ""]
            address = f"{point.host}:{point.port}"
            environment = {delay_login.SETTINGS_VARIABLE: json.dumps(settings.delay_client)}
        elif self.security is not None:
            address, environment = self._admit_delay_service(self.security)
        self.delay = DelayProcess(
            self.loop,
            lambda: delay_command(address, settings.log_dir, settings.node_id),
            environment,
        )
        self.node.controller.on_committed.append(self.delay.image_changed)
        self.delay.image_changed(self.node.controller.committed_image)

    def _admit_delay_service(self, security: Security) -> tuple[str, dict[str, str]]:
        """Open a loopback listener for the delay service alone; returns its address and password
        (docs/decisions/0009)."""
        opened = Listener(DELAY_LISTENER, "127.0.0.1", 0, backlog=8)
        password = os.urandom(32).hex()
        address = ListenerAddress(opened.name, opened.host, opened.port, "SASL_PLAINTEXT")
        security.admit(address, delay_login.USER, password)
        self.node.broker.endpoints[opened.name] = Endpoint(opened.host, opened.port)
        self.door.open_also(opened)
        return f"{opened.host}:{opened.port}", {delay_login.PASSWORD_VARIABLE: password}

    def _serve_metrics(self, host: str, port: int) -> None:
        from headrace.node.process.metrics.metrics_endpoint import MetricsEndpoint

        try:
            self.metrics = MetricsEndpoint(host, port, self._families)
        except OSError as problem:
            self._close()
            raise CannotStart(
                f"Cannot serve metrics on {host}:{port}: {problem.strerror}. "
                "Choose another port with --metrics."
            ) from None

    def serve(self) -> None:
        """Until `stop`; raises DiskFailed if the node had to give up."""
        self.loop.run()
        if self._has_failed():
            self.give_up()
        else:
            self._close()
        if self._has_failed():
            raise self._failure()

    def _has_failed(self) -> bool:
        return self.node.failure is not None or self.flusher.failure is not None

    def _require_membership(self) -> None:
        """The cluster may refuse this node for good."""
        links = self.node.links
        if links is not None and links.failure is not None:
            raise CannotStart(links.failure[0].upper() + links.failure[1:])

    def _failure(self) -> DiskFailed:
        folder, bug, refusal = self.settings.log_dir, self.flusher.failure, self.node.failure
        if bug is not None:
            log.critical("the thread that works on the disk met a bug", exc_info=bug)
            return DiskFailed(
                f"Work on the files under {folder} ended with {type(bug).__name__}: {bug}. That is "
                "a bug: please report it with the log. Start again: what was not flushed is read."
            )
        assert refusal is not None, "asked only after a failure"
        return DiskFailed(
            f"The disk under {folder} failed ({refusal.strerror}); data that was not flushed may "
            "be lost: check the disk, then start again."
        )

    @property
    def is_stopping(self) -> bool:
        return self._stop_asked

    def stop(self) -> None:
        """Stop, from any thread or a signal handler: `serve` returns soon.

        A second call does not wait until others have taken over what this node leads.
        """
        self._stop_at_once = self._stop_asked
        self._stop_asked = True
        self.flusher.ring()

    def _bell_rang(self) -> None:
        self.flusher.finish()
        if self._stop_asked or self._has_failed():
            self.loop.stopping = True

    def _end_turn(self) -> bool:
        if self.node.failure is not None:
            self.loop.stopping = True  # no bell has rung if it was the quorum that failed
        if self.node.end_turn():
            return True
        # The refused batches were answered in this turn.
        lost, self.node.lost = self.node.lost, []
        for session in take_back([c.session for c in self.loop.connections.values()], lost):
            self.loop.close(session.connection, "the disk refused what its answer rests on")
        return False

    def _close(self) -> None:
        if self.delay is not None:
            self.delay.close()
        self._leave()
        self.door.close()
        self.node.purgatory.answer_all()
        self.loop.finish_turn()
        self._say_farewell()
        for connection in list(self.loop.connections.values()):
            self.loop.close(connection)
        self.node.stop()
        self.loop.finish_turn()
        ended = select.poll()  # `select` knows no descriptor above 1,023
        ended.register(self.flusher.wake_up, select.POLLIN)
        while not self.node.stopped and not self._has_failed():
            ended.poll(1_000)
            self.flusher.finish()
            self.node.durability.every_second()
            self.node.end_turn()
        self._end_threads()

    def _leave(self) -> None:
        """Others take over what this node leads before it stops answering."""
        self.node.leave()
        while not self.node.has_left and not self._has_failed() and not self._stop_at_once:
            self.loop.turn(self.loop.wait_ms())
        self.node.leave(at_once=True)
        self.loop.finish_turn()  # what it says to others at the end

    def give_up(self) -> None:
        """No more promises: the next start recovers what the disk has."""
        self.door.close()
        for connection in list(self.loop.connections.values()):
            self.loop.close(connection)
        self._end_threads()

    def _end_threads(self) -> None:
        self.background.close()
        self.flusher.stop()
        if self.peers is not None:
            self.peers.close()
        if self.metrics is not None:
            self.metrics.close()
        self.loop.poller.close()
        self._locks.release()

    def _say_farewell(self) -> None:
        """Give clients a moment to take the replies they are owed."""
        for _ in range(FAREWELL_TURNS):
            if not any(c.session.outbox for c in self.loop.connections.values()):
                return
            self.loop.turn(50)

    def _families(self) -> Iterator[Family]:
        yield from request_families(list(self.node.dispatch.routes.values()))
        yield from node_families(self.node, self.loop, self.door, self.security)


def open_listeners(settings: Settings, undo: ExitStack) -> list[Listener]:
    opened = []
    for listener in (*settings.listeners, *settings.controllers):
        try:
            backlog = settings.values["socket.listen.backlog.size"]
            opened.append(Listener(listener.name, listener.host, listener.port, backlog=backlog))
            undo.callback(opened[-1].socket.close)
        except OSError as problem:
            advice = "Is another broker running there? Choose a port with --listen."
            if listener in settings.controllers:
                advice = "Other controllers look for this one there: stop the program that uses it."
            raise CannotStart(
                f"Cannot listen on {listener.host}:{listener.port}: {problem.strerror}. {advice}"
            ) from None
    return opened


def most_held_bytes(values: Mapping[str, Any]) -> int:
    """Returns the limit for unfinished requests of all connections; Kafka's -1 means no limit."""
    limit: int = values["queued.max.request.bytes"]
    return limit if limit >= 0 else sys.maxsize


def limits_of(
    values: Mapping[str, Any],
    possible: int,
    of_listeners: Mapping[str, int],
    rates_of_listeners: Mapping[str, int],
) -> ConnectionLimits:
    return ConnectionLimits(
        connections=min(values["max.connections"], possible),
        connections_per_address=values["max.connections.per.ip"],
        idle_ms=values["connections.max.idle.ms"],
        of_addresses=connections_by_address(values["max.connections.per.ip.overrides"]),
        of_listeners=of_listeners,
        rate=values["max.connection.creation.rate"],
        rates_of_listeners=rates_of_listeners,
        samples=values["quota.window.num"],
        sample_ms=values["quota.window.size.seconds"] * 1000,
    )
