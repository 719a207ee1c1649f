"""The options that every client command has, and the connection that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, cast

import typer

from headrace.cli.failure import Failure
from headrace.cli.options import profiles
from headrace.cli.options.key_values import key_values
from headrace.cli.options.near_names_there import with_suggestion
from headrace.client.admin.groups import NoSuchGroup
from headrace.client.connection import ClientSettings, connection
from headrace.client.errors import ClientError, NoSuchTopic

P = ParamSpec("P")

CLUSTER_PANEL = "The cluster"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Bootstrap servers (default: localhost:9092).",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
MoreSettings = Annotated[
    list[str],
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A setting for librdkafka, such as security.protocol=ssl. Repeat for more.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        envvar="HEADRACE_CLIENT_CONFIG",
        metavar="FILE",
        help="A file of such settings, one key=value per line; the Java names of stores and "
        "logins do too.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="How long to wait for an answer.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        envvar="HEADRACE_PROFILE",
        metavar="NAME",
        help="A cluster that `headrace profile create` saved (default: the one in use).",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]

DEFAULT_TIMEOUT_S = 10.0


@dataclass(slots=True)
class At:
    """Where the cluster is, and how a command gets there."""

    bootstrap: str | None = None
    settings: list[str] = field(default_factory=list)
    config_file: Path | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    profile: str | None = None

    @contextmanager
    def connection(self) -> Iterator[ClientSettings]:
        """An error inside ends the command with one sentence."""
        try:
            cluster = self._settings()
        except ClientError as failure:
            raise Failure(str(failure)) from failure
        try:
            yield cluster
        except (NoSuchTopic, NoSuchGroup) as failure:
            raise Failure(with_suggestion(failure, cluster)) from failure
        except ClientError as failure:
            raise Failure(str(failure)) from failure

    def name(self) -> str:
        """The profile's name, or the address if the command names the cluster itself."""
        current = None if self._names_cluster() else profiles.load().current
        return self.profile or current or self._settings().bootstrap

    def of_profile(self, name: str) -> ClientSettings:
        """Another cluster than the command's own."""
        other = profiles.load().named(name)
        try:
            return connection(
                bootstrap=other.bootstrap, overrides=other.settings, timeout_s=self.timeout_s
            )
        except ClientError as failure:
            raise Failure(f"Profile {name}: {failure}") from failure

    def _names_cluster(self) -> bool:
        """Whether the command names a cluster itself, so that no profile is in use."""
        overrides = key_values(self.settings, option="-X")
        return bool(self.bootstrap or self.config_file or "bootstrap.servers" in overrides)

    def _settings(self) -> ClientSettings:
        """The profile's settings are the weakest, but for the default address."""
        overrides = key_values(self.settings, option="-X")
        chosen = profiles.chosen(self.profile, named=self._names_cluster())
        return connection(
            bootstrap=self.bootstrap or chosen.bootstrap,
            overrides={**chosen.settings, **overrides},
            config_file=self.config_file,
            timeout_s=self.timeout_s,
        )


def _at(
    *,
    bootstrap: Bootstrap = None,
    x: MoreSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    profile: Profile = None,
) -> At:
    return At(bootstrap, x, client_config, timeout, profile)


_SHARED = signature(_at, eval_str=True).parameters


def cluster_options(command: Callable[Concatenate[At, P], None]) -> Callable[..., None]:
    """Behind a command's own options come those of the cluster; it gets them as one, `at`."""

    @wraps(command)
    def with_options(**given: Any) -> None:
        at = _at(**{name: given.pop(name) for name in _SHARED})
        cast(Callable[..., None], command)(at, **given)

    _, *own = signature(command, eval_str=True).parameters.values()
    shown = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*own, *_SHARED.values())]
    # Typer looks at both.
    with_options.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in shown}
    return with_options
