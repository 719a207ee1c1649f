"""A listener's certificates, versions and ciphers, from Kafka's `ssl.*` settings to OpenSSL's.

Keys and certificates are PEM: in a file (`ssl.keystore.location`: key and chain in one) or in the
settings themselves. Files are checked every few seconds; when one has changed, new connections get
the new certificate, and open ones keep theirs. New files that cannot be used are logged once and
change nothing. New *settings* must name a certificate with the names of the one before, unless
`ssl.allow.dn.changes` and `ssl.allow.san.changes` say otherwise (KIP-978).

Not done: Java's key stores (JKS, PKCS12), versions before TLS 1.2, a choice among the three cipher
suites of TLS 1.3 (Python offers none), lists of revoked certificates.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.authentication.certificate_names import (
    MalformedCertificate,
    MalformedRules,
    NameRules,
    alternative_names_of,
    subject_of,
)
from headrace.node.serving.principal import Principal
from headrace.node.serving.session import Session

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 5_000
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
SUITES_OF_TLS_1_3 = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class BadTls(ValueError):
    """A listener's settings or files are wrong; the message is one sentence."""


@dataclass(slots=True)
class TlsFiles:
    """The TLS settings of one listener; texts are PEM."""

    keystore: str | None
    key: str | None = field(repr=False)
    chain: str | None
    key_password: str | None = field(repr=False)
    truststore: str | None
    trusted: str | None
    client_auth: str
    versions: tuple[str, ...]
    suites: tuple[str, ...]
    other_subject: bool = False  # may replace a certificate with another subject
    fewer_names: bool = False  # ... or one that has alternative names which this one lacks

    def paths(self) -> list[str]:
        return [path for path in (self.keystore, self.truststore) if path is not None]


def tls_files(values: Mapping[str, Any]) -> TlsFiles:
    """Returns the files from a listener's settings, by Kafka's names."""
    for store in ("keystore", "truststore"):
        named = values[f"ssl.{store}.location"] or values[_INLINE[store]]
        kind = values[f"ssl.{store}.type"]
        if named and kind != "PEM":
            raise BadTls(
                f"ssl.{store}.type={kind} is not supported: turn the store into PEM and say "
                f"ssl.{store}.type=PEM."
            )
    if values["ssl.keystore.location"] and values["ssl.keystore.certificate.chain"]:
        raise BadTls("ssl.keystore.location and ssl.keystore.certificate.chain exclude each other.")
    if values["ssl.truststore.location"] and values["ssl.truststore.certificates"]:
        raise BadTls("ssl.truststore.location and ssl.truststore.certificates exclude each other.")
    found = TlsFiles(
        keystore=values["ssl.keystore.location"] or None,
        key=values["ssl.keystore.key"] or None,
        chain=values["ssl.keystore.certificate.chain"] or None,
        key_password=values["ssl.key.password"],
        truststore=values["ssl.truststore.location"] or None,
        trusted=values["ssl.truststore.certificates"] or None,
        client_auth=values["ssl.client.auth"],
        versions=_versions(values["ssl.enabled.protocols"], values["ssl.protocol"]),
        suites=values["ssl.cipher.suites"],
        other_subject=values["ssl.allow.dn.changes"],
        fewer_names=values["ssl.allow.san.changes"],
    )
    if not found.keystore and not (found.key and found.chain):
        raise BadTls(
            "TLS needs a certificate: name ssl.keystore.location (PEM, key and chain in one file), "
            "or ssl.keystore.key and ssl.keystore.certificate.chain."
        )
    if found.client_auth != "none" and not found.truststore and not found.trusted:
        raise BadTls(
            f"ssl.client.auth={found.client_auth} needs the certificates that are trusted: name "
            "ssl.truststore.location or ssl.truststore.certificates."
        )
    return found


_INLINE = {
    "keystore": "ssl.keystore.certificate.chain",
    "truststore": "ssl.truststore.certificates",
}


def _versions(enabled: tuple[str, ...], newest: str) -> tuple[str, ...]:
    strange = [version for version in enabled if version not in VERSIONS]
    if strange or not enabled:
        raise BadTls(
            f"ssl.enabled.protocols must be a list of {', '.join(VERSIONS)}; older ones are not "
            "safe."
        )
    if newest not in (*VERSIONS, "TLS"):
        raise BadTls(f"ssl.protocol must be one of {', '.join(VERSIONS)}, not '{newest}'.")
    if newest == "TLSv1.2":
        enabled = tuple(version for version in enabled if version == newest)
        if not enabled:
            raise BadTls("ssl.protocol=TLSv1.2 allows no version of ssl.enabled.protocols.")
    return enabled


def context_of(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _choose_versions_and_suites(context, files)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = CLIENT_AUTH[files.client_auth]
    _load_own_certificate(context, files)
    _load_trusted(context, files)
    return context


def context_for_calls(files: TlsFiles, *, checks_names: bool) -> ssl.SSLContext:
    """Returns the context for connections to other nodes: it uses the listener's own certificate
    and trusts the same authorities."""
    if not files.truststore and not files.trusted:
        raise BadTls(
            "TLS between nodes needs the certificates that are trusted: name "
            "ssl.truststore.location or ssl.truststore.certificates."
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_names
    _choose_versions_and_suites(context, files)
    _load_own_certificate(context, files)
    _load_trusted(context, files)
    return context


def _choose_versions_and_suites(context: ssl.SSLContext, files: TlsFiles) -> None:
    versions = files.versions
    of_1_3 = SUITES_OF_TLS_1_3 & set(files.suites)
    older = [suite for suite in files.suites if suite not in SUITES_OF_TLS_1_3]
    if files.suites:
        if not of_1_3:
            versions = tuple(version for version in versions if version != "TLSv1.3")
        elif of_1_3 != SUITES_OF_TLS_1_3 and "TLSv1.3" in versions:
            raise BadTls(
                "ssl.cipher.suites must name all three suites of TLS 1.3 or none of them: "
                f"{', '.join(sorted(SUITES_OF_TLS_1_3))}."
            )
        if not older:
            versions = tuple(version for version in versions if version != "TLSv1.2")
    if not versions:
        raise BadTls("ssl.cipher.suites allows no version of ssl.enabled.protocols.")
    context.minimum_version = min(VERSIONS[version] for version in versions)
    context.maximum_version = max(VERSIONS[version] for version in versions)
    if older:
        try:
            context.set_ciphers(":".join(map(openssl_name, older)))
        except ssl.SSLError:
            raise BadTls("ssl.cipher.suites names no suite that OpenSSL has here.") from None


def openssl_name(suite: str) -> str:
    """Returns OpenSSL's name of a TLS 1.2 suite in Java's spelling, such as
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    found = re.fullmatch(r"(?:TLS|SSL)_([A-Z0-9_]+)_WITH_([A-Z0-9_]+)", suite)
    if found is None:
        return suite  # OpenSSL's own spelling
    exchange = found[1].replace("_", "-")
    cipher = re.sub(r"AES_(\d+)_", r"AES\1_", found[2]).replace("_", "-").replace("-CBC", "")
    if "CHACHA20-POLY1305" in cipher:
        cipher = "CHACHA20-POLY1305"
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"


def _load_own_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    where = files.keystore or "ssl.keystore.key and ssl.keystore.certificate.chain"
    # Without a function OpenSSL would ask for the password at the terminal.
    password = files.key_password or ""
    try:
        if files.keystore is not None:
            context.load_cert_chain(files.keystore, password=lambda: password)
        else:
            text = as_pem(files.key or "") + as_pem(files.chain or "")
            with _as_file(text) as path:
                context.load_cert_chain(path, password=lambda: password)
    except ssl.SSLError as failure:
        raise BadTls(f"{where} cannot be used: {_reason(failure)}.") from None
    except OSError as failure:
        raise BadTls(f"{where} cannot be read: {failure.strerror}.") from None


def _load_trusted(context: ssl.SSLContext, files: TlsFiles) -> None:
    where = files.truststore or "ssl.truststore.certificates"
    try:
        if files.truststore is not None:
            context.load_verify_locations(cafile=files.truststore)
        elif files.trusted is not None:
            context.load_verify_locations(cadata=as_pem(files.trusted))
    except ssl.SSLError as failure:
        raise BadTls(f"{where} cannot be used: {_reason(failure)}.") from None
    except OSError as failure:
        raise BadTls(f"{where} cannot be read: {failure.strerror}.") from None


def _reason(failure: ssl.SSLError) -> str:
    words = failure.reason or "it holds no certificates"
    return words.replace("_", " ").lower()


def as_pem(text: str) -> str:
    """PEM with the line breaks that OpenSSL needs; in a settings file they are often spaces."""
    found = []
    for kind, body in _PEM.findall(text):
        if ":" in body:  # headers of the older encrypted keys; those have their line breaks
            found.append(f"-----BEGIN {kind}-----{body}-----END {kind}-----")
            continue
        letters = "".join(body.split())
        lines = [letters[at : at + 64] for at in range(0, len(letters), 64)]
        found.append("\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----")))
    return "\n".join((*found, ""))


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A file that only this process can open, since OpenSSL reads keys from files alone."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("headrace-key")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:  # readable by its owner alone
        file.write(text)
        file.flush()
        yield file.name


class Tls:
    """One listener's TLS as it is now; `look` notices new files."""

    def __init__(self, files: TlsFiles, rules: str) -> None:
        self._files = files
        self._seen = _stamps(files)  # before they are read: a change meanwhile is seen later
        self.context = context_of(files)
        self._certificate = _own_certificate(files)
        self._rules = name_rules(rules)

    def require_names_of(self, before: Tls) -> None:
        """Raises BadTls if clients that trust the names of the earlier certificate would not trust
        this one."""
        mine, theirs = self._certificate, before._certificate
        if mine is None or theirs is None:
            return  # in a form that OpenSSL takes and we cannot read
        try:
            subjects = subject_of(mine), subject_of(theirs)
            lacking = alternative_names_of(theirs) - alternative_names_of(mine)
        except MalformedCertificate as fault:
            raise BadTls(f"{fault}.") from None
        if not self._files.other_subject and subjects[0].casefold() != subjects[1].casefold():
            raise BadTls(
                f"the certificate is of {subjects[0]} and not of {subjects[1]}; "
                "ssl.allow.dn.changes=true allows that."
            )
        if not self._files.fewer_names and lacking:
            raise BadTls(
                f"the certificate lacks {len(lacking)} of the alternative names that the one "
                "before has; ssl.allow.san.changes=true allows that."
            )

    def look(self) -> None:
        seen = _stamps(self._files)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.context = context_of(self._files)
            self._certificate = _own_certificate(self._files)
        except BadTls as fault:
            log.error("the new certificates are not used: %s", fault)
        else:
            log.info(
                "new certificates from %s are used from now on", ", ".join(self._files.paths())
            )

    def name_session(self, session: Session, certificate: bytes | None) -> None:
        """A client with a certificate is named by it; one without stays anonymous."""
        if certificate is None:
            return
        try:
            user = self._rules.user_of(subject_of(certificate))
        except MalformedCertificate as fault:
            raise ClosesConnection(str(fault)) from None
        if user is None:
            raise ClosesConnection("a certificate that no rule of ssl.principal.mapping.rules fits")
        session.principal = Principal("User", user)


def _own_certificate(files: TlsFiles) -> bytes | None:
    """The first certificate of the chain, in DER."""
    try:
        text = files.chain or Path(files.keystore or "").read_text("latin-1")
        body = next(body for kind, body in _PEM.findall(text) if kind == "CERTIFICATE")
        return base64.b64decode("".join(body.split()), validate=True)
    except (OSError, StopIteration, binascii.Error):
        return None


def name_rules(text: str) -> NameRules:
    try:
        return NameRules(text)
    except MalformedRules as fault:
        raise BadTls(f"ssl.principal.mapping.rules {fault}.") from None


def _stamps(files: TlsFiles) -> list[tuple[str, int, int, int] | None]:
    stamps: list[tuple[str, int, int, int] | None] = []
    for path in files.paths():
        try:
            found = os.stat(path)
        except OSError:
            stamps.append(None)  # being replaced; looked at again
        else:
            stamps.append((path, found.st_mtime_ns, found.st_size, found.st_ino))
    return stamps


def nobody(session: Session, certificate: bytes | None) -> None:
    """For listeners where a login follows: the certificate names no principal."""
