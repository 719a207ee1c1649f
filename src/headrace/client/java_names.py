"""Translates settings from the Java client's names to librdkafka's and back, for one file for both.

Settings with the same name in both pass unchanged. Stores must be PEM; Java's own formats are
refused with a sentence, since librdkafka cannot read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

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
    """The same settings for librdkafka; librdkafka's own names win over translated ones."""
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


def as_java(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with which a Java client connects to the same cluster; no others."""
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol == "PLAINTEXT":
        return {}
    found = {"security.protocol": protocol}
    if "ssl.ca.location" in settings:
        found |= _store("truststore", "location", settings["ssl.ca.location"])
    elif "ssl.ca.pem" in settings:
        found |= _store("truststore", "certificates", settings["ssl.ca.pem"])
    chain = pem_text(settings, "ssl.certificate")
    if chain is not None:
        found |= _store("keystore", "certificate.chain", chain)
        found["ssl.keystore.key"] = pem_text(settings, "ssl.key") or chain
        if "ssl.key.password" in settings:
            found["ssl.key.password"] = settings["ssl.key.password"]
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    if protocol.startswith("SASL_"):
        mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "GSSAPI")
        found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(mechanism, settings)}
    return found


def _store(store: str, what: str, value: str) -> dict[str, str]:
    return {f"ssl.{store}.type": "PEM", f"ssl.{store}.{what}": value}


def pem_text(settings: Mapping[str, str], name: str) -> str | None:
    """The PEM text of a setting, or of the file that a setting names."""
    if f"{name}.pem" in settings:
        return settings[f"{name}.pem"]
    if f"{name}.location" not in settings:
        return None
    path = Path(settings[f"{name}.location"])
    try:
        return path.read_text("utf-8")
    except OSError as failure:
        raise ClientError(f"Cannot read {path}: {failure.strerror}.") from failure


_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}


def _jaas(mechanism: str, settings: Mapping[str, str]) -> str:
    module = _MODULES.get(mechanism)
    if module is None:
        raise ClientError(
            f"A login by {mechanism} needs Java's own settings; "
            f"{', '.join(_MODULES)} can be passed on."
        )
    user, password = (
        settings.get(f"sasl.{name}", "").replace("\\", "\\\\").replace('"', '\\"')
        for name in ("username", "password")
    )
    return (
        f"org.apache.kafka.common.security.{module} required "
        f'username="{user}" password="{password}";'
    )
