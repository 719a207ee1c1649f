"""One client file for Java's tools and for librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.client.java_names import as_java, as_librdkafka

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_stores_and_logins() -> None:
    assert as_librdkafka(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} required username="al\\"ice" password=wonder;',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "x",
            "ssl.endpoint.identification.algorithm": "",
        }
    ) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": 'al"ice',
        "sasl.password": "wonder",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_librdkafkas_own_settings_pass_as_they_are() -> None:
    own = {"security.protocol": "ssl", "ssl.keystore.location": "/me.p12", "client.id": "x"}
    assert as_librdkafka(own) == own


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.truststore.type": "JKS", "ssl.truststore.location": "/ca.jks"},
        {"sasl.jaas.config": "com.example.Kerberos required;"},
    ],
)
def test_what_cannot_be_translated_is_a_sentence(settings: dict[str, str]) -> None:
    with pytest.raises(ClientError):
        as_librdkafka(settings)


def test_and_back_for_spark(tmp_path: Path) -> None:
    """A name and a password with quotes in them too."""
    given = {
        "bootstrap.servers": "a:1",
        "client.id": "x",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'won"d\\er',
        "ssl.ca.location": "/ca.pem",
    }
    java = as_java(given)
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="alice" password="won\\"d\\\\er";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }
    again = as_librdkafka(java)
    assert {name: given[name] for name in again} == again
    both = tmp_path / "me.pem"
    both.write_text("key and chain")
    mine = {"ssl.certificate.location": str(both), "ssl.key.location": str(both)}
    assert as_java({"security.protocol": "ssl", **mine}) == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "key and chain",
        "ssl.keystore.key": "key and chain",
    }
    assert as_java({"bootstrap.servers": "a:1"}) == {}
    with pytest.raises(ClientError, match="OAUTHBEARER"):
        as_java({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"})
