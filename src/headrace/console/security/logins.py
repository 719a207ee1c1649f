"""The sessions of users who are logged in, and the limit on login attempts. Passwords are in memory
only, and gone with the session: they are kept only in the user's own connection to the cluster.

Sessions are bounded in number and in time. Time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.console.access.cluster_access import ClusterAccess
from headrace.edge.login_failures import LoginFailures

MOST_PEOPLE = 50
# Sessions of one user: a user who logs in again and again ends only their own sessions.
MOST_OF_ONE = 5
IDLE_S = 3_600.0
LONGEST_S = 12 * 3_600.0

# After these failed attempts within WINDOW_S a client has to wait.
WINDOW_S = 300.0
MOST_OF_A_NAME = 5
MOST_OF_AN_ADDRESS = 20
MOST_IN_ALL = 200
MOST_REMEMBERED = 10_000


# Logins by a user's name and a password.
MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


def uses_passwords(settings: Mapping[str, str]) -> bool:
    """Whether clients with these settings log in by name and password."""
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "")
    return "sasl" in settings.get("security.protocol", "").lower() and mechanism in MECHANISMS


@dataclass(slots=True)
class Person:
    name: str
    access: ClusterAccess
    began_s: float
    seen_s: float


@dataclass(slots=True)
class People:
    """Sessions of logged-in users; the caller closes the ended ones."""

    _by_session: OrderedDict[str, Person] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._by_session)

    def begin(self, session: str, person: Person) -> list[Person]:
        """Begins a session. Returns the sessions that ended because of it: expired, or the longest
        idle of too many."""
        gone = self.sweep(person.began_s)
        own = [key for key, each in self._by_session.items() if each.name == person.name]
        gone += [self._by_session.pop(key) for key in own[: max(len(own) + 1 - MOST_OF_ONE, 0)]]
        while len(self._by_session) >= MOST_PEOPLE:
            gone.append(self._by_session.popitem(last=False)[1])
        self._by_session[session] = person
        return gone

    def of(self, session: str | None, now_s: float) -> Person | None:
        found = None if session is None else self._by_session.get(session)
        if session is None or found is None or _is_over(found, now_s):
            return None
        found.seen_s = now_s
        self._by_session.move_to_end(session)
        return found

    def end(self, session: str) -> Person | None:
        return self._by_session.pop(session, None)

    def sweep(self, now_s: float) -> list[Person]:
        over = [key for key, person in self._by_session.items() if _is_over(person, now_s)]
        return [self._by_session.pop(key) for key in over]

    def all(self) -> list[Person]:
        return list(self._by_session.values())


def _is_over(person: Person, now_s: float) -> bool:
    return now_s - person.seen_s > IDLE_S or now_s - person.began_s > LONGEST_S


@dataclass(slots=True)
class LoginLimits:
    """Slows down guessing: limits attempts per user name, per address, and in all."""

    _failures: LoginFailures = field(
        default_factory=lambda: LoginFailures(window_s=WINDOW_S, most_keys=MOST_REMEMBERED)
    )

    def wait_s(self, name: str, address: str, now_s: float) -> float:
        """How long before the next attempt; 0: now."""
        counted = _counted(name, address)
        return max(self._failures.wait_s(key, now_s, most=most) for key, most in counted)

    def failed(self, name: str, address: str, now_s: float) -> None:
        for key, most in _counted(name, address):
            self._failures.note(key, now_s, most=most)

    def succeeded(self, name: str, address: str, counted_s: float) -> None:
        """The attempt that was counted at this time succeeded: it is no longer counted as a
        failure. Failures of other users at the same address stay."""
        of_name, *others = _counted(name, address)
        self._failures.forget(of_name[0])
        for key, _ in others:
            self._failures.take_back(key, counted_s)


def _counted(name: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
    """Returns under which keys an attempt is counted, and how many of each are allowed."""
    return (
        (("name", name), MOST_OF_A_NAME),
        (("address", address), MOST_OF_AN_ADDRESS),
        (("all", ""), MOST_IN_ALL),
    )
