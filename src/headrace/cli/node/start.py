"""`headrace start`: a node in the foreground.

Loads the server and no client. When the node is ready it shows a panel: the address, where the data
lies, three commands to try. Ctrl-C and SIGTERM end it cleanly.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.key_values import key_values
from headrace.cli.options.local_folder import local_folder
from headrace.node.process import main as server_main
from headrace.node.process.folders.joined_node import has_joined
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.local_cluster.plan import lives_in, read_plan
from headrace.node.process.server import DiskFailed, Server
from headrace.node.process.settings.settings import CannotStart, load_settings
from headrace.private_files import keep_new_files_private

app = typer.Typer(add_completion=False, **output.LOOK)

DEFAULT_DATA = "headrace-data"
Opened = tuple[str, socket.socket]  # the console's address and its socket
NO_CONSOLE_BESIDE_LOGINS = (
    "A node whose security is in its settings has no console beside it: "
    "`headrace console --login --client-config FILE` asks people for their passwords."
)
NO_HTTP_BESIDE_LOGINS = (
    "A node whose security is in its settings has no HTTP API beside it: "
    "`headrace http --login --client-config FILE` takes the logins of its users."
)


@app.command()
def start(
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=local_folder,
            help="The data folder (default: ./headrace-data).",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where clients connect (default: localhost:9092). Port 0 takes a free one.",
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many brokers, each a process with a port and a folder of its own "
            "(default: one, or as many as the folder has).",
        ),
    ] = None,
    controller_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the first controller listens, those of --brokers on the next ports. With "
            "--insecure, nodes of other machines can join there.",
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Join the cluster of this broker, with a new folder; later starts do without.",
        ),
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option(
            "--node-id",
            metavar="NUMBER",
            min=0,
            help="The number of the node that joins (default: the next one).",
        ),
    ] = None,
    client_config: Annotated[
        Path | None,
        typer.Option(
            "--client-config",
            metavar="FILE",
            help="How --join asks a cluster with passwords or TLS, as for other commands.",
        ),
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting. Repeat for more."),
    ] = [],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A server.properties file; --set wins over it."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics there.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Let other machines connect, without encryption and without passwords.",
        ),
    ] = False,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Encrypt and ask for passwords, with the files of `headrace security init`.",
        ),
    ] = False,
    security: Annotated[
        Path,
        typer.Option(
            metavar="DIR", parser=local_folder, help="The folder that `security init` wrote."
        ),
    ] = Path("headrace-security"),
    console: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the web console there. On a terminal: localhost:8080 or the next free "
            "port.",
        ),
    ] = None,
    no_console: Annotated[bool, typer.Option("--no-console", help="Serve no console.")] = False,
    console_park_to: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FOLDER",
            help="Where the console parks backlogs: a database or a folder.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve HTTP there: sending and receiving without a Kafka client.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when the node is ready.")
    ] = False,
) -> None:
    """Start a node, a Kafka cluster of one, or with --brokers a cluster of several."""
    keep_new_files_private()
    opened: Opened | None = None
    watched = sys.stdout.isatty() and not as_json
    if console_park_to is not None and (no_console or (console is None and not watched)):
        raise Failure("--console-park-to is for a console: add --console HOST:PORT.")
    park_words = [] if console_park_to is None else ["--park-to", console_park_to]
    if console is not None and not no_console:
        from headrace.cli.node import console_process

        opened = console_process.open_socket(console)  # a taken port is told before all else
    http_socket: Opened | None = None
    if http is not None:
        from headrace.cli.node import http_process

        http_socket = http_process.open_socket(http)
    overrides = key_values(set_, option="--set")
    named = _named_folders(data, overrides)
    folder = named[0]
    joins = join is not None or has_joined(folder)
    if joins:
        from headrace.cli.node.join import require_alone

        require_alone(brokers=brokers, secure=secure)
    elif node_id is not None or client_config is not None:
        from headrace.cli.node.join import require_joining

        require_joining(node_id=node_id, client_config=client_config)
    opens = controller_listen is not None  # a node alone becomes a cluster of one that others join
    if not joins and ((brokers or 1) > 1 or opens or (config is None and lives_in(folder))):
        from headrace.cli.node.cluster_start import start_cluster
        from headrace.node.process.local_cluster.cluster import Wanted

        if http is not None:
            raise Failure(
                "--brokers and --http do not go together: run `headrace http` beside the cluster."
            )
        by = security if secure else None
        log_dirs = () if overrides.pop("log.dirs", None) is None else named
        wanted = Wanted(folder, brokers, listen, overrides, config, metrics, insecure, by, log_dirs)
        wanted.controller_listen = controller_listen
        words = [*([] if by is None else login_words(by)), *park_words]

        def browse(bootstrap: str) -> str | None:
            return None if no_console else _beside(bootstrap, opened, words, by_itself=watched)

        try:
            start_cluster(
                wanted, say=_say, log=_log, as_json=as_json, command=_command(), browse=browse
            )
        except CannotStart as refusal:
            raise Failure(str(refusal)) from refusal
        _say_stopped(folder, as_json=as_json)
        return

    def show(server: Server) -> None:
        folder = str(Path(server.settings.log_dir).absolute())
        folders = [str(Path(path).absolute()) for path in server.settings.log_dirs]
        secured = security if secure else None
        browse = (
            None if no_console else _console(server, opened, secured, park_words, by_itself=watched)
        )
        door = None if http_socket is None else _http(server, http_socket, secured)
        if as_json:
            ready: dict[str, object] = {"address": server.address, "data": folder}
            if folders != [folder]:
                ready["log_dirs"] = folders
            if joins:
                ready["node"] = server.settings.node_id
            ready["pid"] = os.getpid()
            beside = {"console": browse, "http": door}
            _say([json.dumps(ready | {k: v for k, v in beside.items() if v is not None})])
        else:
            client = security / "admin.properties" if secure else None
            data = ", ".join(dict.fromkeys((folder, *folders)))
            lines = welcome(server.address, data, client, browse, door)
            if joins or not server.settings.cluster.may_begin_alone:
                lines = of_several(lines, server)
            _say(lines)
            if join is not None:
                _say_how_to_vote(server)

    used: str | None = None
    try:
        if joins:
            from headrace.cli.node.join import Joining, joined_settings

            joining = Joining(
                folder, join, node_id, listen, controller_listen, overrides, config, client_config
            )
            joining.metrics, joining.insecure = metrics, insecure
            settings = joined_settings(joining)
        else:
            settings = load_settings(
                config_file=config,
                overrides=overrides,
                data=data,
                listen=listen,
                metrics=metrics,
                insecure=insecure,
                secure=security if secure else None,
            )
        used = settings.log_dir
        server_main.run(settings, show)
    except (CannotStart, DiskFailed) as refusal:
        raise Failure(f"{refusal}{'' if used is None else _how_to_start_all(used)}") from refusal
    _say_stopped(settings.log_dir, as_json=as_json)


def _say_how_to_vote(server: Server) -> None:
    """A controller that joins votes when an operator adds it."""
    from headrace.cli.node.join import how_to_vote

    if (words := how_to_vote(server.settings)) is not None:
        output.note(f"Its controller follows the others. To let it vote: `{words}`.")


def _say_stopped(folder: str, *, as_json: bool) -> None:
    """The last line, after a clean stop; a program that reads JSON sees the exit code."""
    if as_json:
        return
    path = Path(folder).absolute()
    here = Path.cwd()
    shown = f"./{path.relative_to(here)}" if path.is_relative_to(here) else str(path)
    output.note_after_interrupt(f"Stopped. Data is in {shown}.")


def _how_to_start_all(folder: str) -> str:
    """With --config one node is started, also where --brokers has made a cluster."""
    try:
        plan = read_plan(RealDisk(), folder)
    except CannotStart:
        return ""
    if plan is None or len(plan.nodes) == 1:
        return ""
    return f" To start all brokers of {folder}, add --brokers {len(plan.nodes)}."


def _named_folders(data: Path | None, overrides: Mapping[str, str]) -> tuple[str, ...]:
    """Where the data of this node lie, or of the first of several, as the options say it."""
    named = tuple(filter(None, map(str.strip, overrides.get("log.dirs", "").split(","))))
    if data is not None and named not in ((), (str(data),)):
        raise Failure(
            f"--data says {data} and --set says log.dirs={overrides['log.dirs']}; name the data "
            "folders once."
        )
    return named or (DEFAULT_DATA if data is None else str(data),)


def _say(lines: list[str]) -> None:
    framed = sys.stdout.isatty() and len(lines) > 1
    sys.stdout.write(panel(lines, framed=framed) + "\n")
    sys.stdout.flush()


def of_several(lines: list[str], server: Server) -> list[str]:
    """The same for one node among others; a controller alone has nothing for clients to try."""
    cluster = server.settings.cluster
    roles = "broker and controller" if cluster.is_controller else "broker"
    first = f"Headrace {headrace.__version__}, node {server.settings.node_id} of a Kafka cluster: "
    if not cluster.is_broker:
        return [first + "controller", *lines[1:4], "", "Ctrl-C ends it."]
    return [first + roles, *lines[1:]]


def _log(line: str) -> None:
    """Writes a log line of a cluster's node; it is escaped already."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _console(
    server: Server,
    opened: Opened | None,
    secured: Path | None,
    words: list[str],
    *,
    by_itself: bool,
) -> str | None:
    """The address of the console that runs beside the node from now on, if one does; beside a
    node that asks for passwords it asks for them too."""
    if server.security is None:
        return _beside(server.address, opened, words, by_itself=by_itself)
    if secured is not None:
        words = [*login_words(secured), *words]
        return _beside(server.address, opened, words, by_itself=by_itself)
    if opened is not None:
        output.note(NO_CONSOLE_BESIDE_LOGINS)
    return None


def login_words(folder: Path) -> list[str]:
    """How people log in at the node that `headrace security init` has made a folder for."""
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": str(folder.absolute() / "ca.pem"),
    }
    return ["--login", *(word for name, to in settings.items() for word in ("-X", f"{name}={to}"))]


def _beside(
    bootstrap: str, opened: Opened | None, words: list[str], *, by_itself: bool
) -> str | None:
    from headrace.cli.node import console_process

    if opened is None:
        if not (by_itself and console_process.is_installed()):
            return None
        opened = console_process.open_socket(None)
    console_process.CONSOLE.start_beside(bootstrap, *opened, words)
    return opened[0]


def _http(server: Server, opened: Opened, secured: Path | None) -> str | None:
    """The address of the HTTP door that runs beside the node from now on; beside a node that asks
    for passwords it asks for them too."""
    from headrace.cli.node import http_process

    if server.security is not None and secured is None:
        output.note(NO_HTTP_BESIDE_LOGINS)
        return None
    words = [] if secured is None else login_words(secured)
    http_process.HTTP.start_beside(server.address, *opened, words)
    return opened[0]


def welcome(
    address: str,
    folder: str,
    client: Path | None = None,
    console: str | None = None,
    http: str | None = None,
) -> list[str]:
    """`client` is the file by which one gets in, if one is needed."""
    by = "" if client is None else f" --client-config {client}"
    kcat = f"-b {address}" if client is None else f"-F {client.with_name('admin.conf')}"
    return [
        f"Headrace {headrace.__version__}, a Kafka cluster of one",
        "",
        f"address  {address}",
        f"data     {folder}",
        *([] if console is None else [f"console  {console}"]),
        *([] if http is None else [f"http     {http}"]),
        "",
        "Try, in another terminal:",
        f"  echo 'hello, world' | {_command()} produce greetings{_at(address)}{by}",
        f"  {_command()} consume greetings --follow{_at(address)}{by}",
        f"  kcat -C {kcat} -t greetings",
        *([] if client is None else ["  (kcat logs in by SCRAM from librdkafka 2.6.1 on)"]),
        "",
        "Ctrl-C ends it.",
    ]


def _command() -> str:
    """How the person can call this command: by its name if that is on the PATH."""
    if shutil.which("headrace"):
        return "headrace"
    called = Path(sys.argv[0]).absolute()
    if called.name != "headrace":
        return f"{shlex.quote(sys.executable)} -m headrace"
    below = called.is_relative_to(Path.cwd())
    return shlex.quote(str(called.relative_to(Path.cwd()) if below else called))


def _at(address: str) -> str:
    return "" if address == "localhost:9092" else f" -b {address}"


def panel(lines: list[str], *, framed: bool) -> str:
    """The lines in a box, drawn by hand: loading rich would double the time to start."""
    width = max(map(len, lines))
    if not framed or width + 4 > shutil.get_terminal_size().columns:
        return "\n".join(lines)
    rule = "─" * (width + 2)
    inside = "\n".join(f"│ {line:<{width}} │" for line in lines)
    return f"╭{rule}╮\n{inside}\n╰{rule}╯"
