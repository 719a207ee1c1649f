"""Under which circumstances a client sends what the fuzzer tries: a node for each of them.

`open` asks nobody who he is; `guarded` has an authorizer, and the client is a user without any
right; `before-login` takes nothing but a login; `login` speaks PLAIN, SCRAM and OAUTHBEARER with
tokens that were changed on the way (`logins.py`); `limited` has quotas that everybody exceeds.
The first byte of an input says which one is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.node.serving.principal import ANONYMOUS, Principal
from headrace.node.serving.session import Session
from tests.fuzz.logins import must_log_in

# Bits of an input's first byte: whole frames follow, not what `target.framed` makes frames of.
RAW = 2
_VARIANT_FROM_BIT = 2


def _nothing(session: Session) -> None:
    """Nobody is asked who he is."""


def _as_mallory(session: Session) -> None:
    session.principal = Principal("User", "mallory")


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    begin: Callable[[Session], None] = _nothing  # prepares the session of an input
    settings: Mapping[str, str] = field(default_factory=dict)
    is_powerless: bool = False  # whatever it sends, nothing may change
    is_login: bool = False
    is_limited: bool = False

    def may_change(self, session: Session) -> bool:
        if self.is_powerless:
            return False
        return self.begin is not must_log_in or session.principal != ANONYMOUS


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN = Variant("open")
GUARDED = Variant(
    "guarded",
    begin=_as_mallory,
    settings={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
    is_powerless=True,
)
BEFORE_LOGIN = Variant("before-login", begin=must_log_in)
LOGIN = Variant("login", begin=must_log_in, is_login=True)
LIMITED = Variant("limited", is_limited=True)
VARIANTS = (OPEN, GUARDED, BEFORE_LOGIN, LOGIN, LIMITED)
BY_NAME = {variant.name: variant for variant in VARIANTS}


def variant_of(flags: int) -> Variant:
    return VARIANTS[(flags >> _VARIANT_FROM_BIT) % len(VARIANTS)]


def flags_of(variant: Variant, *, raw: bool = False) -> int:
    """The first byte of an input for this variant."""
    return VARIANTS.index(variant) << _VARIANT_FROM_BIT | (RAW if raw else 0)
