"""The life of a broker as its controller knows it: registered, unfenced, leaving; a pure machine.

    REGISTERING -> CATCHING_UP -> FENCED -> RUNNING -> LEAVING -> GONE

A broker registers with the incarnation id of this start and gets an epoch. It replays the metadata
up to that epoch, asks by heartbeats to be unfenced, and from then on its heartbeats only show that
it is alive. Before it stops it requests a controlled shutdown and waits until the controller has
given its leaderships to others. A controller that does not know it, or knows a later registration
of its id, makes it register again. After a kill the controller believes for a session that the
broker is alive, and refuses its next start. That start holds the same data folder, so the previous
process is dead for certain: the start asks for the earlier epoch to be fenced, and is registered at
once.

Events come in by `step`, effects go out; `next_ms` is when a `Tick` is due. Answers are matched by
the number of their request, so a late one changes nothing. Settings, waits and the errors that end
a start are Apache Kafka's. Unlike Apache, a forgotten broker registers again without a restart, and
a broker that leaves does not wait for a missing controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from headrace.node.broker.cluster.refused_levels import RefusedLevels
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from headrace.wire.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)

# After a failure the next request waits so long; each further failure doubles it.
FIRST_RETRY_MS, LONGEST_RETRY_MS = 100, 1_000
JITTER = 0.2  # the part by which a wait may be longer, so that brokers do not retry together
# The controller has much to do when a broker leaves; it is asked again this soon, then less often.
FIRST_LOOK_WHILE_LEAVING_MS = 50
LONGEST_LEAVING_MS = 300_000  # as in Apache
UNKNOWN_EPOCH = -1

# Errors that a retry cannot cure.
FATAL = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controller belongs to another cluster than this data "
    "folder: look at controller.quorum.bootstrap.servers and at meta.properties",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has finalized a feature level that this version "
    "does not support, or its controller is too old for it",
}
OTHER_REFUSAL = RefusedLevels(FATAL[ErrorCode.UNSUPPORTED_VERSION])
# The controller does not know this broker, or knows a later registration of its id.
FORGOTTEN = {
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not know this broker",
    ErrorCode.STALE_BROKER_EPOCH: "the controller knows another registration of this broker's id",
}
# The texts for temporary errors; the others are named by their codes.
REASONS = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "a broker of the same id is alive: if it was this "
    "one before a restart, its session ends within broker.session.timeout.ms, else two brokers "
    "have one node.id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the controller does not allow ClusterAction to this "
    "broker's principal",
    ErrorCode.INVALID_REGISTRATION: "the controller does not accept this broker's data folders: "
    "another broker has registered one of them, or meta.properties was copied",
}
# An election is going on: not worth a log line.
IN_PASSING = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)

_CODES = {int(code): code for code in ErrorCode}


class LifecycleState(Enum):
    REGISTERING = "registers"
    CATCHING_UP = "replays the metadata up to its registration"
    FENCED = "asks to be unfenced"
    RUNNING = "is alive"
    LEAVING = "hands over what it leads"
    GONE = "may stop"


NEXT_STATES: dict[LifecycleState, frozenset[LifecycleState]] = {
    LifecycleState.REGISTERING: frozenset(
        {LifecycleState.CATCHING_UP, LifecycleState.RUNNING, LifecycleState.GONE}
    ),
    LifecycleState.CATCHING_UP: frozenset(
        {
            LifecycleState.FENCED,
            LifecycleState.REGISTERING,
            LifecycleState.LEAVING,
            LifecycleState.GONE,
        }
    ),
    LifecycleState.FENCED: frozenset(
        {
            LifecycleState.RUNNING,
            LifecycleState.REGISTERING,
            LifecycleState.LEAVING,
            LifecycleState.GONE,
        }
    ),
    LifecycleState.RUNNING: frozenset(
        {LifecycleState.REGISTERING, LifecycleState.LEAVING, LifecycleState.GONE}
    ),
    LifecycleState.LEAVING: frozenset({LifecycleState.GONE}),
    LifecycleState.GONE: frozenset(),
}


@dataclass(slots=True)
class LifecycleSettings:
    heartbeat_interval_ms: int = 2_000  # broker.heartbeat.interval.ms
    session_timeout_ms: int = 9_000  # broker.session.timeout.ms
    initial_registration_timeout_ms: int = 60_000  # initial.broker.registration.timeout.ms
    controlled_shutdown: bool = True  # controlled.shutdown.enable


# Events


@dataclass(slots=True)
class Started:
    """The node has its logs open and looks for the controller."""


@dataclass(slots=True)
class Admitted:
    """The controller in the same process has registered and unfenced this broker as it started."""

    epoch: int


@dataclass(slots=True)
class Applied:
    """The broker has applied the metadata up to this offset."""

    offset: int


@dataclass(slots=True)
class Answered:
    """The controller's answer; None: no answer came."""

    number: int
    response: BrokerRegistrationResponse | BrokerHeartbeatResponse | None


@dataclass(slots=True)
class ControllerMoved:
    """Another node is the active controller: stop waiting for the former one."""


@dataclass(slots=True)
class DirectoryFailed:
    directory_id: bytes


@dataclass(slots=True)
class Cordoned:
    """These data folders, and no others, take no new replicas (`cordoned.log.dirs`)."""

    directory_ids: list[bytes]


@dataclass(slots=True)
class Left:
    """The operator stops the node."""


@dataclass(slots=True)
class Tick:
    """Time has passed."""


Event = (
    Started
    | Admitted
    | Applied
    | Answered
    | ControllerMoved
    | DirectoryFailed
    | Cordoned
    | Left
    | Tick
)


# Effects


@dataclass(slots=True)
class Send:
    """A request to the active controller; its answer has the same number."""

    number: int
    request: BrokerRegistrationRequest | BrokerHeartbeatRequest


@dataclass(slots=True)
class Unfenced:
    """Clients may find this broker now."""


@dataclass(slots=True)
class MayStop:
    """This broker leads nothing any more, or no broker can take over."""


@dataclass(slots=True)
class Failed:
    """The node cannot be a member of this cluster; it ends with this message."""

    sentence: str


@dataclass(slots=True)
class Say:
    """A line for the log."""

    sentence: str


Effect = Send | Unfenced | MayStop | Failed | Say


class Lifecycle:
    __slots__ = (
        "settings",
        "state",
        "epoch",
        "next_ms",
        "_registration",
        "_jitter",
        "_applied_offset",
        "_offline",
        "_cordoned",
        "_number",
        "_in_flight",
        "_is_overtaken",
        "_failures",
        "_looks_while_leaving",
        "_started_ms",
        "_heard_ms",
        "_leaving_ms",
        "_was_registered",
        "_reason",
        "_earlier_epoch",
        "_fences_earlier",
        "_refused_levels",
    )

    def __init__(
        self,
        registration: BrokerRegistrationRequest,
        settings: LifecycleSettings,
        jitter: Callable[[], float],
        earlier_epoch: int = UNKNOWN_EPOCH,
        refused_levels: Callable[[], RefusedLevels | None] = lambda: OTHER_REFUSAL,
    ) -> None:
        """`registration` describes this start; its `previous_broker_epoch` is that of the last
        clean stop. `jitter` gives numbers from 0 to 1. `earlier_epoch` is that of an earlier start
        on the same data folder, if the metadata says that it is alive. `refused_levels` tells why a
        registration was refused with UNSUPPORTED_VERSION; None: not known yet."""
        self.settings = settings
        self.state = LifecycleState.REGISTERING
        self.epoch = UNKNOWN_EPOCH
        self.next_ms: int | None = None  # None: nothing is due by time
        self._registration = copy(registration)
        self._jitter = jitter
        self._applied_offset = -1
        self._offline: list[bytes] = []  # data folders that have failed
        self._cordoned: list[bytes] = []  # data folders that take no new replicas
        self._number = 0  # number of the last request
        self._in_flight = False
        self._is_overtaken = False  # the request in flight is out of date
        self._failures = 0  # in a row
        self._looks_while_leaving = 0
        self._started_ms = 0
        self._heard_ms = 0  # the last answer of a controller, even a refusal
        self._leaving_ms = 0
        self._was_registered = False
        self._reason = ""  # why the last attempt failed; logged once
        # Used by the first registration only: later this broker id may belong to another process.
        self._earlier_epoch = earlier_epoch
        self._fences_earlier = False  # the request in flight asks for that
        self._refused_levels = refused_levels

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if self.state is LifecycleState.GONE:
            return []
        match event:
            case Started():
                self._started_ms = self._heard_ms = now_ms
                return self._send(now_ms)
            case Admitted():
                self._registered(event.epoch)
                self._enter(LifecycleState.RUNNING)
                self.next_ms = now_ms + self.settings.heartbeat_interval_ms
                return []
            case Applied():
                return self._applied(event.offset, now_ms)
            case Answered():
                return self._answered(event, now_ms)
            case ControllerMoved():
                is_waiting = self._in_flight or self._failures > 0
                return self._send(now_ms) if is_waiting else []
            case DirectoryFailed():
                self._offline.append(event.directory_id)
                online = [d for d in self._registration.log_dirs if d != event.directory_id]
                self._registration.log_dirs = online
                return [] if self.state is LifecycleState.REGISTERING else self._send_next(now_ms)
            case Cordoned():
                self._cordoned = event.directory_ids
                return [] if self.state is LifecycleState.REGISTERING else self._send_next(now_ms)
            case Left():
                return self._leave(now_ms)
            case Tick():
                return self._tick(now_ms)
        assert_never(event)

    @property
    def epoch_of_clean_stop(self) -> int:
        """Returns the epoch by which the next start shows that nothing was lost, if this one stops
        cleanly now. A start that never registered returns the epoch of the last clean stop before
        it."""
        return max(self.epoch, self._registration.previous_broker_epoch)

    @property
    def offline_directories(self) -> Sequence[bytes]:
        return self._offline

    # Requests

    def _send(self, now_ms: int) -> list[Effect]:
        """Send the request that the state asks for; an answer to the one before does not count."""
        self._number += 1
        self._in_flight = True
        self._is_overtaken = False
        self._fences_earlier = False
        # The host answers every request; this guards against a host that forgets one.
        self.next_ms = now_ms + self.settings.session_timeout_ms
        if self.state is LifecycleState.REGISTERING:
            return [Send(self._number, copy(self._registration))]
        heartbeat = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._applied_offset,
            want_fence=self.state is LifecycleState.CATCHING_UP,
            want_shut_down=self.state is LifecycleState.LEAVING,
            offline_log_dirs=list(self._offline),
            cordoned_log_dirs=list(self._cordoned),
        )
        return [Send(self._number, heartbeat)]

    def _fence_earlier(self, now_ms: int) -> list[Effect]:
        [send] = self._send(now_ms)
        assert isinstance(send, Send)
        self._fences_earlier = True
        send.request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self._earlier_epoch,
            current_metadata_offset=self._applied_offset,
            want_fence=True,
        )
        return [Say("the earlier start of this broker has ended: it is fenced"), send]

    def _send_next(self, now_ms: int) -> list[Effect]:
        """Send at once, but after the request in flight: a request to stay fenced must not arrive
        after a request to be unfenced."""
        if not self._in_flight:
            return self._send(now_ms)
        self._is_overtaken = True
        return []

    def _tick(self, now_ms: int) -> list[Effect]:
        given_up = self._give_up(now_ms)
        if given_up or self.next_ms is None or now_ms < self.next_ms:
            return given_up
        return self._send(now_ms)

    def _give_up(self, now_ms: int) -> list[Effect]:
        settings = self.settings
        if self.state is LifecycleState.LEAVING:
            silent = now_ms - self._heard_ms >= settings.session_timeout_ms
            if silent or now_ms - self._leaving_ms >= LONGEST_LEAVING_MS:
                why = "no controller answers" if silent else "the controller does not let it go"
                return [
                    Say(f"this broker stops without its leaders handed over: {why}"),
                    *self._end(),
                ]
        elif not self._was_registered:
            limit_ms = settings.initial_registration_timeout_ms
            if self.next_ms is not None and now_ms - self._started_ms >= limit_ms:
                why = self._reason or "no active controller was found"
                return self._fail(
                    f"it could not register within {limit_ms} ms "
                    f"(initial.broker.registration.timeout.ms): {why}"
                )
        return []

    # Answers

    def _answered(self, event: Answered, now_ms: int) -> list[Effect]:
        if event.number != self._number or not self._in_flight:
            return []
        self._in_flight = False
        is_overtaken, self._is_overtaken = self._is_overtaken, False
        effects = self._outcome(event.response, now_ms, is_overtaken=is_overtaken)
        if is_overtaken and not self._in_flight and self.state is not LifecycleState.GONE:
            effects += self._send(now_ms)
        return effects

    def _outcome(
        self,
        response: BrokerRegistrationResponse | BrokerHeartbeatResponse | None,
        now_ms: int,
        *,
        is_overtaken: bool,
    ) -> list[Effect]:
        """`is_overtaken`: the answer is for a request of an earlier state."""
        if response is None:
            return self._retry(now_ms, "")
        self._heard_ms = now_ms
        if self._fences_earlier:
            self._earlier_epoch = UNKNOWN_EPOCH
            return self._send(now_ms)
        code = _CODES.get(response.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code != ErrorCode.NONE:
            return self._refused(code, now_ms)
        self._failures = 0
        self._reason = ""
        if isinstance(response, BrokerRegistrationResponse):
            return self._registration_answered(response, now_ms)
        return [] if is_overtaken else self._heartbeat_answered(response, now_ms)

    def _registration_answered(
        self, response: BrokerRegistrationResponse, now_ms: int
    ) -> list[Effect]:
        self._registered(response.broker_epoch)
        self._enter(LifecycleState.CATCHING_UP)
        if self._applied_offset >= self.epoch:
            self._enter(LifecycleState.FENCED)
        return self._send(now_ms)

    def _registered(self, epoch: int) -> None:
        self.epoch = epoch
        self._was_registered = True
        self._earlier_epoch = UNKNOWN_EPOCH
        # A later registration of this process does not follow a clean stop.
        self._registration.previous_broker_epoch = UNKNOWN_EPOCH

    def _heartbeat_answered(self, response: BrokerHeartbeatResponse, now_ms: int) -> list[Effect]:
        interval_ms = self.settings.heartbeat_interval_ms
        self.next_ms = now_ms + interval_ms
        match self.state:
            case LifecycleState.FENCED if not response.is_fenced:
                self._enter(LifecycleState.RUNNING)
                return [Unfenced()]
            case LifecycleState.LEAVING if response.should_shut_down:
                return self._end()
            case LifecycleState.LEAVING:
                wait_ms = FIRST_LOOK_WHILE_LEAVING_MS << min(self._looks_while_leaving, 10)
                self._looks_while_leaving += 1
                self.next_ms = now_ms + min(wait_ms, interval_ms)
        return []

    def _refused(self, code: ErrorCode, now_ms: int) -> list[Effect]:
        if code == ErrorCode.UNSUPPORTED_VERSION and self.state is LifecycleState.REGISTERING:
            return self._levels_refused(now_ms)
        if code in FATAL:
            return self._end() if self.state is LifecycleState.LEAVING else self._fail(FATAL[code])
        if code in FORGOTTEN and self.state is not LifecycleState.REGISTERING:
            if self.state is LifecycleState.LEAVING:
                return self._end()  # this broker leads nothing under this epoch any more
            self._enter(LifecycleState.REGISTERING)
            self.epoch = UNKNOWN_EPOCH
            return [Say(f"{FORGOTTEN[code]}: it registers again"), *self._send(now_ms)]
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION and self._earlier_epoch >= 0:
            return self._fence_earlier(now_ms)
        reason = "" if code in IN_PASSING else REASONS.get(code, f"the controller says {code.name}")
        return self._retry(now_ms, reason)

    def _levels_refused(self, now_ms: int) -> list[Effect]:
        why = self._refused_levels()
        if why is None:
            return self._retry(now_ms, OTHER_REFUSAL.sentence)
        if why.instead is None:
            return self._fail(why.sentence)
        wanted = [Feature(name, *levels) for name, levels in why.instead.items()]
        if wanted == self._registration.features:
            return self._fail(why.sentence)
        self._registration.features = wanted
        return [Say(f"{why.sentence}. It was a member before, and goes on"), *self._send(now_ms)]

    def _retry(self, now_ms: int, reason: str) -> list[Effect]:
        wait_ms = min(FIRST_RETRY_MS << min(self._failures, 10), LONGEST_RETRY_MS)
        wait_ms += int(wait_ms * JITTER * self._jitter())
        self._failures += 1
        self.next_ms = now_ms + wait_ms
        if not reason or reason == self._reason:
            return []
        self._reason = reason
        return [Say(f"{reason}; it tries again")]

    # Events

    def _applied(self, offset: int, now_ms: int) -> list[Effect]:
        self._applied_offset = max(self._applied_offset, offset)
        if self.state is not LifecycleState.CATCHING_UP or self._applied_offset < self.epoch:
            return []
        self._enter(LifecycleState.FENCED)
        return self._send_next(now_ms)

    def _leave(self, now_ms: int) -> list[Effect]:
        if self.state is LifecycleState.LEAVING:
            return []
        if self.state is LifecycleState.REGISTERING or not self.settings.controlled_shutdown:
            return self._end()
        self._enter(LifecycleState.LEAVING)
        self._leaving_ms = self._heard_ms = now_ms
        return self._send_next(now_ms)

    def _end(self) -> list[Effect]:
        self._enter(LifecycleState.GONE)
        self.next_ms = None
        return [MayStop()]

    def _fail(self, why: str) -> list[Effect]:
        self._enter(LifecycleState.GONE)
        self.next_ms = None
        broker_id = self._registration.broker_id
        return [Failed(f"broker {broker_id} cannot join the cluster: {why}.")]

    def _enter(self, state: LifecycleState) -> None:
        if state is self.state:
            return
        assert state in NEXT_STATES[self.state], f"{self.state} -> {state}"
        self.state = state
