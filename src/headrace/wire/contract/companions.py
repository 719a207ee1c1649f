"""Topics that belong to another one: of its delayed messages, retries and dead letters.

`orders` may have `orders.delay`, `orders.delay.rejected`, `orders.delay.outcomes`, and for the
group billing `orders.billing.retry` and `orders.billing.dead`, the first with companions of its
own. Pure: it uses only names, and a companion counts only if the topic that it belongs to exists
too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.wire.contract.delay_topics import COMPANION_SUFFIX, OUTCOMES_SUFFIX, REJECTED_SUFFIX

# The internal topics of services: the registry of delayed topics, the audit, and others.
OF_SERVICES = "headrace."
# The suffixes of a topic and a group: `orders.billing.retry`, `orders.billing.dead`.
RETRY_SUFFIX, DEAD_SUFFIX = ".retry", ".dead"

_DELAY = "|".join(re.escape(s) for s in (COMPANION_SUFFIX, REJECTED_SUFFIX, OUTCOMES_SUFFIX))
# A group's name has no dot in it here: `app/names.py` escapes it.
_RETRY, _DEAD = re.escape(RETRY_SUFFIX), re.escape(DEAD_SUFFIX)
_BELONGS = re.compile(rf"(?:\.[^.]+(?:{_RETRY}(?:{_DELAY})?|{_DEAD})|{_DELAY})")


def with_companions(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns the suffixes of the companions of each topic that is not itself a companion."""
    known = set(names)
    found: dict[str, list[str]] = {name: [] for name in known if _owner(name, known) is None}
    for name in sorted(known - found.keys()):
        owner = _owner(name, known)
        assert owner is not None
        found[owner].append(name.removeprefix(owner))
    return found


def _owner(name: str, known: set[str]) -> str | None:
    """The shortest topic in front that is there: companions of companions are its own."""
    at = name.find(".")
    while at > 0:
        if name[:at] in known and _BELONGS.fullmatch(name, at):
            return name[:at]
        at = name.find(".", at + 1)
    return None
