"""Log records and alerts: the topics, the fields of a value, and the words for levels.

The format that the shipper and the logging handler write and the shipped pipelines read. A value is
one JSON object; its key is the id of the file (or of the program) it came from, so that its lines
stay in order; its timestamp is when it was read, `time` is when it happened. The same line sent
twice has the same `id`, in the value and in the header `headrace-message-id`.
"""

from __future__ import annotations

TOPIC = "logs"
ALERTS = "log-alerts"
# Characters. Tables have a folder for each service, and file systems names of 255 bytes.
LONGEST_SERVICE = 60

TRACE, DEBUG, INFO, WARN, ERROR, FATAL = "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"
LEVELS = (TRACE, DEBUG, INFO, WARN, ERROR, FATAL)

DDL = (
    "id STRING NOT NULL, time TIMESTAMP NOT NULL, service STRING NOT NULL, host STRING, "
    "level STRING, message STRING NOT NULL, file STRING, fields MAP<STRING, STRING>, "
    "problem STRING, cut STRING"
)

_WORDS = {
    TRACE: ("trace", "finest", "finer", "verbose"),
    DEBUG: ("debug", "fine", "dbg"),
    INFO: ("info", "information", "notice", "config", "informational", "log"),
    WARN: ("warn", "warning", "wrn"),
    ERROR: ("error", "err", "severe", "failure"),
    FATAL: ("fatal", "critical", "crit", "panic", "emerg", "emergency", "alert", "crt"),
}
_LEVEL_OF = {word: level for level, words in _WORDS.items() for word in words}
# pino and bunyan count in tens.
_LEVEL_OF |= {str(10 * n): level for n, level in enumerate(LEVELS, start=1)}


def level_of(word: str) -> str | None:
    """One of LEVELS, or None for a word that names none."""
    return _LEVEL_OF.get(word.strip().lower())
