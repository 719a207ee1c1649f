"""The completions for `headrace consume ` and Tab: the names of topics and groups.

`headrace --install-completion` teaches the shell to ask. The cluster is the one that the options
before the cursor and the environment name; one that does not answer soon offers nothing, and
nothing is ever said: the person is in the middle of a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress

import typer

# Nobody waits longer for Tab.
PATIENCE_S = 2.0
# The shell puts a name into the line as it is, and whoever presses Enter runs what it says: a group
# may be called `$(reboot)`. Only names that mean nothing to any shell are offered.
_TYPED = re.compile(r"[\w.:@%+,/][\w.:@%+=,/-]*")


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """A name that begins with two underscores is offered to those who begin with one."""
    from headrace.client.admin.topics import Topics
    from headrace.client.connection import ClientSettings

    def all_topics(cluster: ClientSettings) -> Iterable[str]:
        wants_internal = incomplete.startswith("_")
        return (t.name for t in Topics(cluster).all() if wants_internal or not t.internal)

    return _offered(ctx, incomplete, all_topics)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    from headrace.client.admin.groups import Groups
    from headrace.client.connection import ClientSettings

    def all_groups(cluster: ClientSettings) -> Iterable[str]:
        return (group.group for group in Groups(cluster).all())

    return _offered(ctx, incomplete, all_groups)


def _offered(ctx: typer.Context, incomplete: str, names: Callable[..., Iterable[str]]) -> list[str]:
    from headrace.cli.failure import Failure
    from headrace.cli.options.cluster_options import At

    with (
        suppress(Failure, OSError, typer.BadParameter),
        At(
            ctx.params.get("bootstrap"),
            ctx.params.get("x") or [],
            ctx.params.get("client_config"),
            PATIENCE_S,
        ).connection() as cluster,
    ):
        return [
            name
            for name in names(cluster)
            if name.startswith(incomplete) and _TYPED.fullmatch(name) is not None
        ]
    return []
