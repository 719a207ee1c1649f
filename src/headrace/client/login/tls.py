"""librdkafka's settings for keys and certificates, as far as Python's ssl has the same.

PEM in files or in the settings themselves. Not done: PKCS#12 stores, engines, own lists of ciphers.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.client.java_names import pem_text

_NO = ("false", "f", "0")


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    if "ssl.keystore.location" in settings:
        raise ClientError(
            "This call cannot read ssl.keystore.location: turn the store into PEM, and name it in "
            "ssl.certificate.location and ssl.key.location."
        )
    try:
        return _context(settings)
    except OSError as failure:  # of which ssl.SSLError is one
        raise ClientError(f"The certificates or keys cannot be used: {failure}.") from failure


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    trusted = settings.get("ssl.ca.location")
    is_folder = trusted is not None and Path(trusted).is_dir()
    context = ssl.create_default_context(
        cafile=None if is_folder else trusted,
        capath=trusted if is_folder else None,
        cadata=settings.get("ssl.ca.pem"),
    )
    if settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() in _NO:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _show_certificate(context, settings)
    return context


def _show_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    chain = settings.get("ssl.certificate.location")
    key = settings.get("ssl.key.location")
    password = settings.get("ssl.key.password", "")  # with None, OpenSSL would ask the terminal
    if "ssl.certificate.pem" not in settings and "ssl.key.pem" not in settings:
        if chain is not None:
            context.load_cert_chain(chain, key, password)
        return
    texts = [pem_text(settings, name) or "" for name in ("ssl.certificate", "ssl.key")]
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # OpenSSL reads files only
        file.write("\n".join(texts))
        file.flush()
        context.load_cert_chain(file.name, None, password)
