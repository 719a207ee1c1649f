"""Suggestions for a topic or a group that the cluster does not have: "Did you mean orders?"."""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.near_names import nearly

# Names that people choose are more alike than commands are: `reader` and `leaver` have 0.67.
LEAST_ALIKE = 0.8
# The sentences of the client that name what is missing.
_MISSING = re.compile(r"There is no (topic|group) ([\w.-]+?)(?:\.(?:\s|$)|,| that | to | at )")


def with_suggestion(refusal: ClientError, cluster: ClientSettings) -> str:
    """The refusal; if it names a missing topic or group, with names that are close to it.

    Asks the cluster for its names, and leaves the suggestion out if that fails.
    """
    text = str(refusal)
    missing = _MISSING.search(text)
    if missing is None or "Did you mean" in text:
        return text
    kind, name = missing[1], missing[2]
    with suppress(ClientError):
        known = topic_names(cluster) if kind == "topic" else _group_names(cluster)
        close = get_close_matches(name, [each for each in known if each != name], 1, LEAST_ALIKE)
        return f"{text} Did you mean {close[0]}?" if close else text
    return text


def near_topic(name: str, cluster: ClientSettings) -> str | None:
    """A topic whose name differs from a missing one by a letter or so; None if `name` exists."""
    known = topic_names(cluster)
    return None if name in known else nearly(name, known)


def topic_names(cluster: ClientSettings) -> list[str]:
    """All topics but the internal ones."""
    from headrace.client.admin.topics import Topics

    return [topic.name for topic in Topics(cluster).all() if not topic.internal]


def _group_names(cluster: ClientSettings) -> list[str]:
    from headrace.client.admin.groups import Groups

    return [group.group for group in Groups(cluster).all()]
