"""Names of settings as people type them: an unknown one is refused before it is sent.

A cluster stores a broker's setting under any name, and Apache Kafka takes unknown names in a file
with a warning: `min.insync.replica=2` would then protect nothing. The names are those that the
cluster itself tells, so this works on any Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from headrace.cli.failure import Failure
from headrace.client.errors import ClientError
from headrace.near_names import did_you_mean

# Names of one listener, or of one mechanism of it, are not told by DescribeConfigs.
OF_LISTENERS = "listener.name."


def require_known(names: Iterable[str], known: Collection[str]) -> None:
    """`known` are the names that the cluster tells."""
    for name in names:
        if name not in known and not name.startswith(OF_LISTENERS):
            raise Failure(f"There is no setting {name}.{did_you_mean(name, known)}")


@contextmanager
def explained_settings(names: Iterable[str]) -> Iterator[None]:
    """For a topic that is not there yet, so that no cluster tells what settings it would have: what
    the cluster refuses ends with what may have been meant."""
    try:
        yield
    except ClientError as refusal:
        if refusal.code != "INVALID_CONFIG":
            raise
        from headrace.node.metadata.config_definitions import TOPIC_SETTINGS

        for name in names:
            if name not in TOPIC_SETTINGS:
                meant = did_you_mean(name, TOPIC_SETTINGS)
                refusal.args = (f"There is no topic setting {name}.{meant}",)
        raise
