"""The name in a certificate, and the user name that the operator's rules derive from it.

A name is written as Java writes it (RFC 2253: most specific first, `CN=alice,O=shop`), because
Kafka's rules and ACLs are written against that text. Rules are those of
`ssl.principal.mapping.rules`: `RULE:pattern/replacement/[LU]` and `DEFAULT`, the first that fits
the whole name counts. Patterns are matched by RE2, in linear time, whatever a certificate says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import re2

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 27: "ascii", 28: "utf-32-be"}
_BMP_TEXT = 30
_ESCAPED = set(',=+<>#;"\\')
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_ALTERNATIVE_NAMES = "2.5.29.17"


class MalformedCertificate(ValueError):
    """Not a certificate, although the TLS library has accepted it."""


class MalformedRules(ValueError):
    """The error in `ssl.principal.mapping.rules`, as the end of a sentence."""


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate in DER."""
    try:
        subject = _signed(certificate)[4][1]  # after serial number, algorithm, issuer, validity
        parts = ["+".join(_attributes(part)) for _, part in _values(subject)]
    except (IndexError, ValueError, UnicodeError) as broken:
        raise MalformedCertificate("the certificate's subject cannot be read") from broken
    return ",".join(reversed(parts))


def alternative_names_of(certificate: bytes) -> frozenset[tuple[int, bytes]]:
    """Returns the alternative names of a certificate in DER, hosts and addresses: kind and contents
    of each."""
    try:
        for tag, extensions in _signed(certificate):
            if tag != _EXTENSIONS:
                continue
            ((_, listed),) = _values(extensions)
            for _, extension in _values(listed):
                (_, object_id), *_, (_, value) = _values(extension)
                if _object_id(object_id) == _ALTERNATIVE_NAMES:
                    ((_, names),) = _values(value)
                    return frozenset(_values(names))
    except (IndexError, ValueError) as broken:
        raise MalformedCertificate("the certificate's names cannot be read") from broken
    return frozenset()


def _signed(certificate: bytes) -> list[tuple[int, bytes]]:
    """Returns the fields that the issuer has signed, without the version, which may be missing."""
    (_, whole), *_ = _values(certificate)
    (_, signed), *_ = _values(whole)
    fields = list(_values(signed))
    return fields[1:] if fields[0][0] == _VERSION else fields


def _attributes(part: bytes) -> Iterator[str]:
    for _, attribute in _values(part):
        (_, object_id), (kind, value) = _values(attribute)
        name = _object_id(object_id)
        keyword = _KEYWORDS.get(name)
        text = _text(kind, value)
        if keyword is None or text is None:
            yield f"{keyword or name}=#{_encoded(kind, value).hex()}"
        else:
            yield f"{keyword}={_escaped(text)}"


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields tag and contents of each value in a sequence of DER values."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length > 127:
            octets = length & 127
            length = int.from_bytes(data[at : at + octets], "big")
            at += octets
        if at + length > len(data):
            raise ValueError("a length beyond the end")
        yield tag, data[at : at + length]
        at += length


def _encoded(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 128:
        return bytes((tag, size)) + value
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 128 | len(octets))) + octets + value


def _object_id(data: bytes) -> str:
    numbers = [min(data[0] // 40, 2)]
    numbers.append(data[0] - 40 * numbers[0])
    number = 0
    for octet in data[1:]:
        number = number << 7 | octet & 127
        if octet < 128:
            numbers.append(number)
            number = 0
    return ".".join(map(str, numbers))


def _text(kind: int, value: bytes) -> str | None:
    if kind == _BMP_TEXT:
        return value.decode("utf-16-be")
    coding = _TEXTS.get(kind)
    return None if coding is None else value.decode(coding)


def _escaped(text: str) -> str:
    written = "".join(f"\\{sign}" if sign in _ESCAPED else sign for sign in text)
    written = written.replace("\0", "\\00")
    inner = written.strip(" ")
    before = len(written) - len(written.lstrip(" ")) if inner else len(written)
    after = len(written) - before - len(inner)
    return "\\ " * before + inner + "\\ " * after


# ---- rules

_RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|())\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)")


class NameRules:
    """`user_of(name)` uses the first rule that matches; None if none does."""

    def __init__(self, text: str) -> None:
        self._rules = list(_parsed(text.strip()))

    def user_of(self, name: str) -> str | None:
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return name
            found = pattern.fullmatch(name)
            if found is not None:
                user = _replaced(found, replacement)
                return {"L": user.lower(), "U": user.upper()}.get(case, user)
        return None


def _parsed(text: str) -> Iterator[tuple[Any, str, str]]:
    at = 0
    while at < len(text):
        rule = _RULE.match(text, at)
        if rule is None:
            raise MalformedRules("must be a list of DEFAULT and RULE:pattern/replacement/[LU]")
        default, pattern, replacement, case, _ = rule.groups()
        if default:
            yield None, "", ""
        elif pattern is not None:
            try:
                options = re2.Options()
                options.log_errors = False
                yield re2.compile(pattern, options), replacement, case
            except re2.error:
                raise MalformedRules("has a pattern that is not understood by RE2") from None
        at = rule.end()


def _replaced(found: Any, replacement: str) -> str:
    """`$1` is a group as in Java; a number without a group stays as it is."""
    groups = found.re.groups

    def one(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]
        digits, rest = reference[2], ""
        while int(digits) > groups and len(digits) > 1:
            digits, rest = digits[:-1], digits[-1] + rest
        if int(digits) > groups:
            return f"${digits}{rest}"
        return (found.group(int(digits)) or "") + rest

    return _REFERENCE.sub(one, replacement)
