"""What is fuzzed: whole nodes on disks in memory, by the bytes that a client sends.

`Target.run(data)` gives the bytes to a node, under the circumstances that the first byte names
(`variants.py`), and judges what came of it. A client may be refused in any way; what counts as a
crash is a `Failure`:

- a handler that raised what is no refusal, or an exception that dispatch let through;
- a request that is neither answered nor ends its connection, an answer that is not as long as it
  says, or of megabytes (`stand.py`);
- a request that took time or memory out of proportion;
- anything that was changed by a client without rights, or before it has logged in; a login without
  the secret (`logins.py`);
- another connection that is not served, or a record that was acknowledged to it and cannot be read,
  also after the node was killed and started again (`witness.py`).
"""

from __future__ import annotations

import logging
import resource
from struct import Struct
from time import process_time

from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.principal import ANONYMOUS
from headrace.node.serving.route import Route
from headrace.node.serving.session import Session
from tests.fuzz import logins
from tests.fuzz.stand import Failure, Stand
from tests.fuzz.variants import OPEN, RAW, VARIANTS, Variant, variant_of
from tests.fuzz.witness import Witness

__all__ = ["Failure", "Target", "framed", "unframed"]

# A node remembers what it was told; a new one from time to time keeps a finding reproducible.
INPUTS_PER_NODE = 500
INPUTS_PER_TESTIMONY = 25
# Of the processor's time, for one input.
SLOWEST_S = 5.0
# By which one input may lift the process's peak of memory.
MOST_GROWTH_KB = 300 * 1024

_frame_head = Struct(">ihhi").pack


class Watch(logging.Handler):
    """A handler's bug is logged with its traceback, and ends one connection only: find it here."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        # The node here has no client: one that another test left behind may miss its own node.
        if not record.name.startswith("headrace.client"):
            self.seen.append(record)


class Scene:
    """One variant's node, and somebody else on it."""

    def __init__(self, variant: Variant) -> None:
        self.stand = Stand(variant)
        self.witness = Witness(self.stand)
        self.inputs = 0

    def end(self) -> None:
        """The node is killed; the next one on its disk must come up, and have everything."""
        after = Stand(self.stand.variant, self.stand.disk, self.stand.now)
        self.witness.require_all(after)


class Target:
    def __init__(self, only: Variant | None = None) -> None:
        """`only`: whatever the inputs say, this variant is meant."""
        self._only = only
        self._watch = Watch()
        self._log = logging.getLogger("headrace")
        self._level = self._log.level
        self._log.addHandler(self._watch)
        self._log.setLevel(logging.ERROR)
        self._scenes: dict[str, Scene] = {}
        self.requests = 0
        self.refused = 0
        self.answered = 0
        self.logged_in = 0
        self.testimonies = 0
        self.restarts = 0
        self.by_variant = dict.fromkeys((variant.name for variant in VARIANTS), 0)
        self._routes = self._scene(only or OPEN).stand.routes

    def close(self) -> None:
        self._log.removeHandler(self._watch)
        self._log.setLevel(self._level)

    def summary(self) -> str:
        inputs = ", ".join(f"{name} {count}" for name, count in self.by_variant.items())
        return (
            f"inputs: {inputs}; requests: {self.requests}, answered: {self.answered}; connections "
            f"ended: {self.refused}; logins: {self.logged_in}; testimonies: {self.testimonies}, "
            f"restarts: {self.restarts}"
        )

    def routes(self) -> list[Route]:
        return self._routes

    def route_of(self, api_key: int, variant: Variant = OPEN) -> list[Route]:
        """Of the node that is used next, to plant a bug in."""
        routes = self._scene(variant).stand.routes
        return [route for route in routes if route.api_key == api_key]

    def _scene(self, variant: Variant) -> Scene:
        found = self._scenes.get(variant.name)
        if found is None:
            found = self._scenes[variant.name] = Scene(variant)
        return found

    # One input

    def run(self, data: bytes) -> None:
        if len(data) < 2:
            return
        variant = self._only or variant_of(data[0])
        scene = self._scene(variant)
        scene.inputs += 1
        self.by_variant[variant.name] += 1
        started, peak = process_time(), peak_kb()
        try:
            self._run(scene, variant, data)
            self._judge(process_time() - started, peak_kb() - peak)
            self._look_around(scene, variant)
        except Exception:
            self._scenes.pop(variant.name, None)  # what comes next begins with a whole node
            self._watch.seen.clear()
            raise

    def _look_around(self, scene: Scene, variant: Variant) -> None:
        if scene.inputs % INPUTS_PER_TESTIMONY == 0:
            scene.witness.testify(scene.stand)
            self.testimonies += 1
        if scene.inputs >= INPUTS_PER_NODE:
            scene.end()
            self.restarts += 1
            del self._scenes[variant.name]
        self._require_no_bug()

    def _run(self, scene: Scene, variant: Variant, data: bytes) -> None:
        stand = scene.stand
        session = Session("127.0.0.1", "PLAINTEXT")
        variant.begin(session)
        if not variant.may_change(session):
            stand.rest()
        marks = stand.marks()
        try:
            if variant.is_login:
                self._log_in(stand, session, logins.dialogue(data[1:]))
            else:
                raw = data[0] & RAW
                self._feed(stand, session, bytearray(data[1:]) if raw else self.framed(data[1:]))
        except ClosesConnection:
            self.refused += 1
        finally:
            stand.forget(session)
        stand.node.audit.write()
        if not variant.may_change(session) and stand.marks() != marks:
            raise Failure("a client without rights has changed something")

    def _feed(self, stand: Stand, session: Session, stream: bytearray) -> bytes:
        tally, said = stand.feed(session, stream)
        self.requests += tally.asked
        self.answered += tally.answered
        return said

    def _log_in(self, stand: Stand, session: Session, wanted: logins.Dialogue) -> None:
        def send(frame: bytes) -> bytes:
            if session.closing:
                raise ClosesConnection("the connection has ended")
            return self._feed(stand, session, bytearray(frame))[4:]

        try:
            logins.speak(wanted, send)
        finally:
            if session.principal != ANONYMOUS:
                self.logged_in += 1
                if not wanted.secret_is_right:
                    raise Failure(f"{session.principal} has logged in without the secret")
                if session.principal.name != logins.USER:
                    raise Failure(f"{logins.USER} has become {session.principal}")

    def framed(self, data: bytes) -> bytearray:
        return framed(data, self._routes)

    # What came of it

    def _judge(self, seconds: float, grown_kb: int) -> None:
        self._require_no_bug()
        if seconds > SLOWEST_S:
            raise Failure(f"it took {seconds:.1f} s")
        if grown_kb > MOST_GROWTH_KB:
            raise Failure(f"it took {grown_kb // 1024} MB")

    def _require_no_bug(self) -> None:
        if self._watch.seen:
            record = self._watch.seen[0]
            cause = record.exc_info[1] if record.exc_info else None
            raise Failure(record.getMessage()) from cause


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def framed(data: bytes, routes: list[Route]) -> bytearray:
    """Bytes as requests: of each, two choose the API and version, two the length of the rest.

    So that most of what a fuzzer tries reaches a decoder, and not the check of a frame's length.
    """
    out = bytearray()
    at = 0
    while at + 4 <= len(data) and len(out) < 1 << 20:
        route = routes[int.from_bytes(data[at : at + 2], "big") % len(routes)]
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 4 + length]
        out += _frame_head(len(body) + 8, route.api_key, route.version, 7) + body
        at += 4 + length
    return out


def unframed(frames: list[bytes], routes: list[Route], flags: int = 0) -> bytes:
    """The other way round: captured frames, with their size in front, as an input of a fuzzer."""
    places = {(route.api_key, route.version): at for at, route in enumerate(routes)}
    out = bytearray([flags])
    for frame in frames:
        api_key = int.from_bytes(frame[4:6], "big")
        version = int.from_bytes(frame[6:8], "big")
        if (api_key, version) in places and len(frame) < 1 << 16:
            body = frame[12:]
            out += places[api_key, version].to_bytes(2, "big") + len(body).to_bytes(2, "big") + body
    return bytes(out)
