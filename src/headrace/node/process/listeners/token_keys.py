"""The public keys by which tokens are checked: from a file or from the provider's URL.

The operator names them (`sasl.oauthbearer.jwks.endpoint.url`, a `file:` or `https:` URL); no client
can. A node whose keys cannot be had does not start. They are read again every
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and sooner, but not more often than every few seconds,
when a token names a key that is not there; what cannot be read then is logged and changes nothing.
An answer is bounded in size and time, and redirections are not followed. Fetching has a thread of
its own: the loop never waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.edge.host_names import is_loopback
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.serving.authentication.tokens import Key, MalformedKeys, read_keys

log = logging.getLogger(__name__)

LARGEST_ANSWER_BYTES = 1 << 20
LONGEST_WAIT_S = 10.0
LEAST_BETWEEN_S = 10.0
URL = "sasl.oauthbearer.jwks.endpoint.url"


class NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class TokenKeys:
    def __init__(
        self, url: str, refresh_ms: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises BadValue if there are no keys."""
        self._read = _reader(url)
        self._url = url
        self._refresh_s = max(refresh_ms / 1000, LEAST_BETWEEN_S)
        self._clock = clock
        try:
            self._keys = read_keys(self._read())
        except (OSError, ValueError) as fault:
            raise BadValue(f"{URL}={url} gives no keys: {_words(fault)}.") from None
        self._read_at = clock()
        self._fetching: threading.Thread | None = None

    def __call__(self, key_id: str | None) -> Sequence[Key]:
        age_s = self._clock() - self._read_at
        missing = key_id is not None and all(key.id not in (key_id, None) for key in self._keys)
        if age_s >= self._refresh_s or (missing and age_s >= LEAST_BETWEEN_S):
            self._fetch()
        return self._keys

    def _fetch(self) -> None:
        if self._fetching is not None and self._fetching.is_alive():
            return
        self._read_at = self._clock()
        self._fetching = threading.Thread(
            target=self._replace, name="headrace-token-keys", daemon=True
        )
        self._fetching.start()

    def _replace(self) -> None:
        try:
            self._keys = read_keys(self._read())  # one assignment: readers see old or new
        except (OSError, ValueError) as fault:
            log.error("the keys at %s could not be read again: %s", self._url, _words(fault))


def _words(fault: Exception) -> str:
    if isinstance(fault, MalformedKeys):
        return f"what is there {fault}"
    if isinstance(fault, urllib.error.URLError) and not isinstance(fault, urllib.error.HTTPError):
        return str(fault.reason)
    return getattr(fault, "strerror", None) or str(fault)


def _reader(url: str) -> Callable[[], str]:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        path = Path(urllib.parse.unquote(parts.path))
        return lambda: _bounded(path.read_bytes())
    plain_here = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if parts.scheme != "https" and not plain_here:
        raise BadValue(f"{URL} must be an https: or file: URL, not '{url}'.")
    opener = urllib.request.build_opener(NoRedirection())

    def fetch() -> str:
        with opener.open(url, timeout=LONGEST_WAIT_S) as answer:
            return _bounded(answer.read(LARGEST_ANSWER_BYTES + 1))

    return fetch


def _bounded(answer: bytes) -> str:
    if len(answer) > LARGEST_ANSWER_BYTES:
        raise ValueError(f"more than {LARGEST_ANSWER_BYTES} bytes")
    return answer.decode("utf-8", "replace")
