"""Kafka requests with our own codecs, for the admin calls that librdkafka lacks.

One connection, one request at a time, in the newest version that both sides know. Plain and TLS
listeners (`tls.py`), SASL PLAIN, SCRAM and OAUTHBEARER (`sasl.py`). Not done: other mechanisms,
retries, looking for the right broker (callers name its address, or several for a request that any
broker answers: `wire_to_any`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from struct import Struct
from types import TracebackType
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, LoginRefused, Unreachable, sentence
from headrace.client.login.sasl import exchange
from headrace.client.login.tls import tls_context
from headrace.wire.protocol.errors import ErrorCode, MalformedMessage
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import api_versions, sasl_authenticate, sasl_handshake

# More than any admin answer; a larger length means that this is not a Kafka broker.
LARGEST_ANSWER_BYTES = 100 << 20

# Another broker is asked when one has been silent for so long; it may be halted or cut off, and its
# cluster may not know that yet.
PATIENCE_WITH_ONE_OF_SEVERAL_S = 2.0

# Every broker answers ApiVersions, with its versions of all APIs.
FIRST_API_VERSIONS_VERSION = 0

_length = Struct(">i")


class Wire:
    """A connection to one broker; use it in a `with` statement."""

    def __init__(
        self,
        connection: ClientSettings,
        address: tuple[str, int],
        *,
        timeout_s: float | None = None,
    ) -> None:
        self._socket = _connect(connection, address, timeout_s or connection.timeout_s)
        self._client_id = connection.settings.get("client.id", "headrace")
        self._correlation_id = 0
        self._versions: dict[int, range] | None = None
        self._asked: tuple[Any, int] | None = None  # what `receive` waits for
        if "sasl" in connection.settings.get("security.protocol", "").lower():
            self._log_in(connection)

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, messages: Any, request: Any, *, version: int | None = None) -> Any:
        """Send a request and return the answer; `messages` is its module in
        `headrace.wire.protocol.messages`. `version` is for callers that need an older version than
        the newest common one."""
        return self._ask(messages, version or self.version_of(messages), request)

    def send(self, messages: Any, request: Any) -> None:
        """Send without waiting, for callers that wait for several brokers at once."""
        version = self.version_of(messages)
        self._send(messages, version, request)
        self._asked = messages, version

    def receive(self) -> Any:
        """The answer to the last `send`; waits for it. `fileno` is readable when it has begun."""
        assert self._asked is not None, "nothing was sent"
        (messages, version), self._asked = self._asked, None
        return self._answer(messages, version)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_bytes(self) -> bool:
        """Whether TLS has decrypted bytes already, which `select` cannot see."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def wait_for(self, timeout_s: float) -> None:
        """Set how long answers may take from now on; raises if the broker does not answer at
        all."""
        if self._versions is None:
            self._versions = self._ask_for_versions()
        self._socket.settimeout(timeout_s)

    def version_of(self, messages: Any) -> int:
        """The newest version of an API that both the broker and we know."""
        if self._versions is None:
            self._versions = self._ask_for_versions()
        theirs = self._versions.get(messages.API_KEY, range(0))
        ours: range = messages.VERSIONS
        common = min(ours.stop, theirs.stop) - 1
        if common < max(ours.start, theirs.start):
            raise ClientError(f"This cluster does not know {messages.NAME}.")
        return common

    def _log_in(self, connection: ClientSettings) -> None:
        settings = connection.settings
        mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "GSSAPI")
        login = exchange(
            mechanism,
            settings.get("sasl.username", ""),
            settings.get("sasl.password", ""),
            lambda: _token(connection),
        )
        offer = self.ask(sasl_handshake, sasl_handshake.SaslHandshakeRequest(mechanism))
        if offer.error_code != ErrorCode.NONE:
            raise LoginRefused(
                f"The broker does not take {mechanism}; it takes {', '.join(offer.mechanisms)}."
            )
        ours = next(login)
        while ours is not None:
            request = sasl_authenticate.SaslAuthenticateRequest(ours)
            answer = self.ask(sasl_authenticate, request)
            if answer.error_code != ErrorCode.NONE:
                said = (answer.error_message or "it does not say why").rstrip(".")
                raise LoginRefused(
                    f"The broker refuses the login: {said}. Check sasl.mechanism, "
                    "sasl.username and sasl.password."
                )
            ours = login.send(bytes(answer.auth_bytes))

    def _ask_for_versions(self) -> dict[int, range]:
        answer = self._ask(
            api_versions, FIRST_API_VERSIONS_VERSION, api_versions.ApiVersionsRequest()
        )
        if answer.error_code != ErrorCode.NONE:
            raise ClientError(f"The broker refuses ApiVersions with error {answer.error_code}.")
        return {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}

    def _ask(self, messages: Any, version: int, request: Any) -> Any:
        self._send(messages, version, request)
        return self._answer(messages, version)

    def _send(self, messages: Any, version: int, request: Any) -> None:
        self._correlation_id += 1
        pieces = encode_request(messages, version, self._correlation_id, self._client_id, request)
        try:
            self._socket.sendall(b"".join(bytes(piece) for piece in pieces))
        except OSError as failure:
            raise ClientError(f"The broker did not answer: {failure}.") from failure

    def _answer(self, messages: Any, version: int) -> Any:
        try:
            (length,) = _length.unpack(self._receive(_length.size))
            if not 0 <= length <= LARGEST_ANSWER_BYTES:
                raise ClientError("The program at this address is not a Kafka broker.")
            frame = self._receive(length)
            answered_to, answer = decode_response(messages, version, memoryview(frame))
        except OSError as failure:
            raise ClientError(f"The broker did not answer: {failure}.") from failure
        except MalformedMessage as failure:
            raise ClientError(f"The broker's response cannot be read: {failure}.") from failure
        if answered_to != self._correlation_id:
            raise ClientError("The broker's response belongs to another request.")
        return answer

    def _receive(self, length: int) -> bytearray:
        received = bytearray()
        while len(received) < length:
            some = self._socket.recv(min(1 << 16, length - len(received)))
            if not some:
                raise ClientError("The broker closed the connection.")
            received += some
        return received


def _token(connection: ClientSettings) -> tuple[str, dict[str, str]]:
    from headrace.client.login.bearer import bearer_token  # it loads an HTTP client, which few need

    return bearer_token(connection)


def require_no_error(code: int, message: str | None = None) -> None:
    """Raise if the error code of an answer is a refusal."""
    if code == ErrorCode.NONE:
        return
    known = _CODES.get(code)
    words = known.description if known else f"the broker answers with error {code}"
    refusal = ClientError(sentence(message or words))
    if known is not None:
        refusal.code, refusal.retriable = known.name, known.retriable
    raise refusal


_CODES = {int(code): code for code in ErrorCode}


def wire_to_any(connection: ClientSettings, addresses: Sequence[tuple[str, int]]) -> Wire:
    """A connection to the first of these brokers that answers; brokers known to be silent are asked
    last."""
    if len(addresses) > 1:
        for address in sorted(addresses, key=lambda address: address in connection.silent):
            try:
                return wire_if_it_answers(connection, address)
            except LoginRefused:
                raise
            except ClientError:
                continue
    return Wire(connection, addresses[0])  # all of them may be slow


def wire_if_it_answers(connection: ClientSettings, address: tuple[str, int]) -> Wire:
    """A connection to a broker that the caller can do without; the wait for it is shorter."""
    patience_s = min(PATIENCE_WITH_ONE_OF_SEVERAL_S, connection.timeout_s)
    connection.silent.add(address)
    wire = Wire(connection, address, timeout_s=patience_s)
    try:
        wire.wait_for(connection.timeout_s)
    except BaseException:
        wire.close()
        raise
    connection.silent.discard(address)
    return wire


def _connect(
    connection: ClientSettings, address: tuple[str, int], timeout_s: float
) -> socket.socket:
    protocol = connection.settings.get("security.protocol", "plaintext").lower()
    if protocol not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
        raise ClientError(f"{protocol} is not a known security.protocol.")
    context = None if "plaintext" in protocol else tls_context(connection.settings)
    where = f"{address[0]}:{address[1]}"
    try:
        plain = socket.create_connection(address, timeout=timeout_s)
        if context is None:
            return plain
        return context.wrap_socket(plain, server_hostname=address[0])
    except ssl.SSLError as failure:
        raise LoginRefused(
            f"TLS with {where} has failed: {failure}. Check ssl.ca.location, the client's "
            "certificate, and whether this is the broker's TLS port."
        ) from failure
    except OSError as failure:
        raise Unreachable(f"No broker answers at {where}: {failure}.") from failure
