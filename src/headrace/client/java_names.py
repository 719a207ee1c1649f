"""Settings by the Java client's names as librdkafka's: one client file then serves both worlds.

What librdkafka calls alike passes as it is. Stores must be PEM; Java's own formats are refused with
a sentence, since librdkafka cannot read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.client.errors import ClientError

_OPTION = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
# Java's name -> librdkafka's; a key store is two things in one file.
_STORES = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}
_TYPES = ("ssl.truststore.type", "ssl.keystore.type")


def as_librdkafka(settings: Mapping[str, str]) -> dict[str, str]:
    """The same wishes; settings that are librdkafka's own win over what is translated."""
    if not any(name in settings for name in (*_TYPES, "sasl.jaas.config")):
        return dict(settings)  # nothing here is Java's
    found: dict[str, str] = {}
    for name, value in settings.items():
        if name in _TYPES:
            _require_pem(name, value)
        elif name in _STORES:
            found.update(dict.fromkeys(_STORES[name], value))
        elif name == "sasl.jaas.config":
            found.update(_login(value))
    for name, value in settings.items():
        if name not in (*_TYPES, *_STORES, "sasl.jaas.config"):
            found[name] = value
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].lower()
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _require_pem(name: str, value: str) -> None:
    if value.upper() != "PEM":
        raise ClientError(f"{name}={value} cannot be read here: turn the store into PEM.")


def _login(line: str) -> dict[str, str]:
    found = {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", quoted) if quoted or not bare else bare
        for name, quoted, bare in _OPTION.findall(line)
    }
    if len(found) != 2:
        raise ClientError("sasl.jaas.config has no username and password that can be read.")
    return found
