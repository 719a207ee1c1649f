"""Certificates for a cluster of one's own: an authority that signs, and what it has signed.

Keys are on the curve P-256, which signs ten times as fast as RSA; all is PEM, keys as PKCS 8, so
OpenSSL and Java read them. Times are arguments. Writes no files.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.cli.failure import Failure
from headrace.installation import how_to_add

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as missing:
    raise Failure(how_to_add("Certificates need", missing.name, "secure")) from missing

# Clocks of other machines may be behind.
BEGINS_BEFORE = timedelta(hours=1)
_NAMES = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "emailAddress": NameOID.EMAIL_ADDRESS,
}


@dataclass(slots=True)
class Issued:
    """A private key and its certificate, in PEM."""

    key: str
    certificate: str

    def together(self) -> str:
        """As Kafka's PEM key stores are: key and chain in one."""
        return self.key + self.certificate


class Authority:
    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def new(cls, name: str, *, now: datetime, lasts: timedelta) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name([("CN", name)])
        builder = _builder(subject, subject, key, now, lasts)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs_certificates=True), True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, pem: str) -> Authority:
        """From what `together` of `pem` has written."""
        key = serialization.load_pem_private_key(pem.encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(key, x509.load_pem_x509_certificate(pem.encode()))

    @property
    def pem(self) -> Issued:
        return Issued(_key_pem(self._key), _certificate_pem(self._certificate))

    def issue(
        self,
        name: Sequence[tuple[str, str]],
        *,
        now: datetime,
        lasts: timedelta,
        hosts: Iterable[str] = (),
    ) -> Issued:
        """For a server if it has hosts, else for a client; `name` has pairs: ("CN", "alice")."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._certificate.subject, key, now, lasts)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs_certificates=False), True)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
        )
        names = [_alternative(host) for host in hosts]
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if names:  # a node, which also calls other nodes
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(_key_pem(key), _certificate_pem(certificate))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEGINS_BEFORE)
        .not_valid_after(now + lasts)
    )


def _name(parts: Sequence[tuple[str, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(_NAMES[kind], text) for kind, text in parts])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
