"""Users of a cluster who log in by SCRAM: list, set a password, remove (KIP-554).

The password itself never leaves this process: the cluster gets a salted hash of it, and stores keys
that are derived from that. Users are listed with our own codecs: librdkafka 2.16 crashes when the
cluster refuses the listing.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError, explain, kafka_error
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import describe_user_scram_credentials as messages

MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_NAMES = {kind.value: name for name, kind in MECHANISMS.items()}
DEFAULT_ITERATIONS = 4096


@dataclass(slots=True)
class User:
    name: str
    mechanisms: dict[str, int] = field(default_factory=dict)  # number of iterations by mechanism


class Users:
    """SCRAM credentials: `admin.users`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        self._admin = connection.admin()
        # Fails at once if the cluster does not answer.
        brokers = reach(self._admin, connection).brokers.values()
        self._address = next((str(broker.host), broker.port) for broker in brokers)

    def all(self) -> list[User]:
        with Wire(self.connection, self._address) as wire:
            everybody = messages.DescribeUserScramCredentialsRequest(None)
            answer = wire.ask(messages, everybody)
        require_no_error(answer.error_code, answer.error_message)
        return sorted(
            (
                User(
                    found.user,
                    {_NAMES[info.mechanism]: info.iterations for info in found.credential_infos},
                )
                for found in answer.results
            ),
            key=lambda user: user.name,
        )

    def set_password(
        self, name: str, password: str, *, mechanism: str, iterations: int = DEFAULT_ITERATIONS
    ) -> None:
        info = ScramCredentialInfo(_mechanism(mechanism), iterations)
        self._alter([UserScramCredentialUpsertion(name, info, password.encode())])

    def remove(self, name: str) -> list[str]:
        """Remove every password of the user; returns the mechanisms that they were for."""
        known = {user.name: user for user in self.all()}
        if name not in known:
            raise ClientError(f"There is no user {name}.")
        mechanisms = list(known[name].mechanisms)
        for mechanism in mechanisms:
            self._alter([UserScramCredentialDeletion(name, MECHANISMS[mechanism])])
        return mechanisms

    def _alter(self, wishes: list[Any]) -> None:
        futures: dict[str, Future[None]] = self._admin.alter_user_scram_credentials(
            wishes, request_timeout=self.connection.timeout_s
        )
        for future in futures.values():
            try:
                future.result()
            except KafkaException as failure:
                raise explain(kafka_error(failure), self.connection.bootstrap) from failure


def _mechanism(name: str) -> ScramMechanism:
    found = MECHANISMS.get(name.upper())
    if found is None:
        raise ClientError(f"{name} is not a SCRAM mechanism; there are {', '.join(MECHANISMS)}.")
    return found
