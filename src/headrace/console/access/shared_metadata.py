"""The cluster's metadata, asked for once by all questions of one page.

Every question begins with the metadata of the whole cluster, and a page asks several: with 5,000
topics that was most of its time. Here a question takes an answer that another question got since
its page was requested, and waits for an answer that is under way. An answer is used for at most
BELIEVED_S (some questions ask again until something has happened), and not after a change by this
client. Each user's connection has its own object: what one user may see is never shown to another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

BELIEVED_S = 1.0
# An older answer does not show that a broker answers now; a page that asks nothing shows neither.
TRUSTED_S = 5.0
CHANGES = ("create_", "delete_", "alter_", "incremental_alter_")


@dataclass(slots=True)
class SharedMetadata:
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked: Future[Any] | None = None  # the last question, answered or not
    _asked_s: float = 0.0
    cluster_id: str = ""  # of the last answer
    _answers: bool | None = None  # whether the last question was answered; None: none yet
    _answers_s: float = 0.0  # when that was known

    @property
    def answers(self) -> bool | None:
        """Returns whether a broker answers; None if no question of the last TRUSTED_S shows it."""
        return self._answers if self.clock() - self._answers_s <= TRUSTED_S else None

    def note_answer(self, is_answered: bool) -> None:
        self._answers, self._answers_s = is_answered, self.clock()

    def get(self, ask: Callable[[], Any], *, since_s: float, timeout_s: float) -> Any:
        """Returns the answer of `ask`, or an answer that another caller got since `since_s`."""
        with self._lock:
            now_s = self.clock()
            asked = self._asked
            if asked is not None and (
                self._asked_s < since_s or now_s - self._asked_s > BELIEVED_S
            ):
                asked = None
            mine: Future[Any] = Future()
            if asked is None:
                self._asked, self._asked_s = mine, now_s
        if asked is not None:
            try:
                return asked.result(timeout_s)
            except TimeoutError:
                return ask()
        try:
            mine.set_result(ask())
        except BaseException as failure:
            self._forget(mine)
            mine.set_exception(failure)
            raise
        return mine.result()

    def forget(self) -> None:
        with self._lock:
            self._asked = None

    def _forget(self, asked: Future[Any]) -> None:
        with self._lock:
            if self._asked is asked:
                self._asked = None


class SharingAdmin:
    """librdkafka's admin client, except that metadata of the whole cluster is shared."""

    def __init__(self, admin: Any, shared: SharedMetadata, since_s: float) -> None:
        self._admin, self._shared, self._since_s = admin, shared, since_s

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        try:
            found = self._list_topics(topic, timeout)
        except Exception:
            self._shared.note_answer(False)
            raise
        self._shared.note_answer(True)
        self._shared.cluster_id = _cluster_id(found)
        return found

    def _list_topics(self, topic: str | None, timeout: float) -> Any:
        if topic is not None:
            return self._admin.list_topics(topic, timeout=timeout)
        return self._shared.get(
            lambda: self._admin.list_topics(timeout=timeout),
            since_s=self._since_s,
            timeout_s=max(timeout, 0),
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith(CHANGES):
            self._shared.forget()
        return getattr(self._admin, name)


def _cluster_id(metadata: Any) -> str:
    """Empty for a cluster of before Kafka 0.10, which has none."""
    return str(getattr(metadata, "cluster_id", None) or "")
