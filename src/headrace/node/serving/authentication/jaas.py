"""The line of a setting `...sasl.jaas.config`: a login module, a flag, and options.

`org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";`
Names and values may be in quotes, with \\ before a character that would end them. No class is
loaded: only the module's name is compared with that of the mechanism. Several modules in
one line, which Java could try one after the other, are refused as Kafka refuses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|([=;])|([^\s=;"]+))""", re.DOTALL)


class MalformedJaas(ValueError):
    """The error, as the end of a sentence; never with a value in it."""


@dataclass(slots=True)
class LoginModule:
    name: str
    options: dict[str, str] = field(repr=False)  # passwords are among them


def parse(text: str) -> LoginModule:
    parts = _parts(text.strip())
    if not parts or parts[-1] != (";", True):
        raise MalformedJaas("must end with ;")
    if (";", True) in parts[:-1]:
        raise MalformedJaas("must name one login module, not several")
    words = parts[:-1]
    if len(words) < 2 or words[1][0].lower() not in _FLAGS:
        raise MalformedJaas(
            "must begin with a login module and one of " + ", ".join(sorted(_FLAGS))
        )
    options: dict[str, str] = {}
    rest = words[2:]
    if len(rest) % 3:
        raise MalformedJaas("must have options of the form name=value")
    for at in range(0, len(rest), 3):
        (name, sign), equals, (value, other_sign) = rest[at : at + 3]
        if sign or equals != ("=", True) or other_sign:
            raise MalformedJaas("must have options of the form name=value")
        options[name] = value
    return LoginModule(words[0][0], options)


def _parts(text: str) -> list[tuple[str, bool]]:
    """Returns words, and with True the signs between them."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise MalformedJaas("has a quote that does not end")
        quoted, sign, word = part.groups()
        if sign is not None:
            found.append((sign, True))
        else:
            found.append((re.sub(r"\\(.)", r"\1", quoted) if word is None else word, False))
        at = part.end()
    return found
