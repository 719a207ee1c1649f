"""`headrace profile`: save several clusters by name, and choose the one that commands use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options import profiles
from headrace.cli.options.cluster_options import Json
from headrace.cli.options.key_values import key_values
from headrace.client.connection import read_config_file
from headrace.client.errors import ClientError

app = typer.Typer(
    no_args_is_help=True, help="Clusters by name: create, use, list, show, delete.", **output.LOOK
)

# Values of settings with one of these words in their name are not shown.
SECRETS = ("password", "secret", "token", "key.pem", "oauthbearer.config")
HIDDEN = "(hidden)"

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The profile.")]


@app.command()
def create(
    name: Name,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Bootstrap servers."),
    ] = None,
    x: Annotated[
        list[str],
        typer.Option("-X", metavar="KEY=VALUE", help="A setting for librdkafka. Repeat for more."),
    ] = [],
    client_config: Annotated[
        Path | None,
        typer.Option("--client-config", metavar="FILE", help="A file whose settings are copied."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Save a cluster under a name, and use it; the same name again replaces it."""
    profiles.require_name(name)
    try:
        settings = {} if client_config is None else read_config_file(client_config)
    except ClientError as refusal:
        raise Failure(str(refusal)) from refusal
    settings |= key_values(x, option="-X")
    address = bootstrap or settings.pop("bootstrap.servers", None)
    if address is None:
        raise typer.BadParameter("Name the cluster: --bootstrap, or a file that has it.")
    saved = profiles.load()
    saved.by_name[name] = profiles.Profile(address, settings)
    saved.current = name
    profiles.save(saved)
    _answer(name, f"Saved. Commands now use {name} at {address}.", as_json=as_json)


@app.command()
def use(name: Name, as_json: Json = False) -> None:
    """Let commands use this cluster from now on."""
    saved = profiles.load()
    found = saved.named(name)
    saved.current = name
    profiles.save(saved)
    _answer(name, f"Commands now use {name} at {found.bootstrap}.", as_json=as_json)


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """List the saved clusters; the one in use has a star."""
    saved = profiles.load()
    if as_json:
        output.answer_json(
            [
                {"name": name, "bootstrap": each.bootstrap, "current": name == saved.current}
                for name, each in sorted(saved.by_name.items())
            ]
        )
        return
    rows = [
        ("*" if name == saved.current else "", name, each.bootstrap)
        for name, each in sorted(saved.by_name.items())
    ]
    if rows:
        output.table(("in use", "name", "bootstrap"), rows)
    else:
        output.note("No profiles. Save one: headrace profile create NAME --bootstrap HOST:PORT")


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", show_default=False, help="Default: the one in use."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a cluster's settings; passwords are hidden."""
    saved = profiles.load()
    wanted = name or saved.current
    if wanted is None:
        raise Failure("No profile is in use. Choose one: headrace profile use NAME")
    found = saved.named(wanted)
    shown = {key: HIDDEN if _is_secret(key) else to for key, to in found.settings.items()}
    if as_json:
        output.answer_json({"name": wanted, "bootstrap": found.bootstrap, "settings": shown})
        return
    output.say(f"name       {wanted}")
    output.say(f"bootstrap  {found.bootstrap}")
    for key, value in sorted(shown.items()):
        output.say(f"setting    {key}={value}")


@app.command()
def delete(name: Name, as_json: Json = False) -> None:
    """Delete a saved cluster; the cluster itself stays as it is."""
    saved = profiles.load()
    saved.named(name)
    del saved.by_name[name]
    saved.current = None if saved.current == name else saved.current
    profiles.save(saved)
    _answer(name, f"Deleted the profile {name}.", as_json=as_json)


def _is_secret(setting: str) -> bool:
    return any(word in setting for word in SECRETS)


def _answer(name: str, sentence: str, *, as_json: bool) -> None:
    if as_json:
        output.answer_json({"profile": name})
    else:
        output.note(sentence)
