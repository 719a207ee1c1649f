"""The delay service as a process: `headrace delay serve`, or the child of `headrace start`.

Runs until SIGTERM, SIGINT or, as a child, until its parent is gone: its standard input is then
closed. A second signal, or a stop that takes too long because no broker answers, ends it at once;
that loses nothing, because the state is in topics.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.client.connection import ClientSettings, connection
from headrace.client.delay import window_token
from headrace.client.errors import ClientError
from headrace.foreign_text import escaped
from headrace.log_lines import log_to_stderr
from headrace.private_files import keep_new_files_private
from headrace.services.delay.admin.admin_http import DEFAULT_PORT, AdminHttp
from headrace.services.delay.intake import Fenced
from headrace.services.delay.partitions.departure import leave_former_address
from headrace.services.delay.queries import DelayQueries
from headrace.services.delay.service import DelayService, system_clock
from headrace.services.delay.timeline.store import StoreInUse
from headrace.stop_signals import stopped_by_signals
from headrace.wire.contract import delay_login
from headrace.wire.contract.delay_topics import GROUP

log = logging.getLogger("headrace.delay")

LONGEST_STOP_S = 4.0
# In the instance's folder: the port of its last run.
ADMIN_PORT_FILE = "admin-port"
# As for the node: with many live objects the collector's full passes show in the lateness.
GC_THRESHOLDS = (50_000, 20, 50)


def serve(
    at: ClientSettings,
    *,
    folder: Path,
    group: str = GROUP,
    instance: str | None = None,
    admin_host: str = "127.0.0.1",
    admin_port: int = DEFAULT_PORT,
    end_with_parent: bool = False,
    log_level: int = logging.INFO,
    clock: Callable[[], int] = system_clock,
    on_ready: Callable[[DelayService, AdminHttp], object] = lambda service, admin: None,
) -> None:
    """Runs until a signal; raises ClientError with a sentence if it cannot run."""
    log_to_stderr(level=log_level)
    logging.getLogger("headrace.client.librdkafka").setLevel(logging.ERROR)
    try:
        service = DelayService(
            at, folder=folder, clock=clock, group=group, instance=instance or default_instance()
        )
    except ModuleNotFoundError as missing:
        raise ClientError(str(missing)) from missing
    except StoreInUse as failure:
        raise ClientError(
            f"Another process uses the store in {folder}; stop it, or name another folder."
        ) from failure
    queries = DelayQueries(service.store, service.status, service.store_taken)
    remembered = folder / ADMIN_PORT_FILE
    former = _former_port(remembered)
    admin = AdminHttp(
        queries,
        host=admin_host,
        port=admin_port,
        former=former,
        token_of=window_token.new_token if at.is_secured else None,
    )
    service.client_id = client_id_at(admin.host, admin.port)
    if former in (None, admin.port) or leave_former_address(
        at, group, service.instance, client_id_at(admin.host, former)
    ):
        remembered.write_text(f"{admin.port}\n")
    try:
        with stopped_by_signals(lambda: _stop(service)):
            if end_with_parent:
                _stop_with_parent(service)
            where = f"http://{admin.address}"
            log.info("instance %s of group %s; ask it at %s", service.instance, group, where)
            on_ready(service, admin)
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            service.run()
    except Fenced as fenced:
        raise ClientError(
            f"Another process runs as instance {service.instance} of group {group}; give each one "
            f"a name of its own with --instance. ({fenced})"
        ) from fenced
    finally:
        admin.close()
        window_token.forget(admin.address)


def client_id_at(host: str, port: int) -> str:
    """Returns the client id by which the group's members find the address for queries."""
    return f"{GROUP}@{host}:{port}"


def _former_port(remembered: Path) -> int | None:
    try:
        text = remembered.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else None


def default_instance() -> str:
    """One per machine; a second one on it needs a name and a folder of its own."""
    return socket.gethostname()


def _stop_with_parent(service: DelayService) -> None:
    def wait() -> None:
        while os.read(0, 1024):
            pass
        _stop(service)

    threading.Thread(target=wait, name="headrace-delay-parent", daemon=True).start()


def _stop(service: DelayService) -> None:
    service.stop()
    last = threading.Timer(LONGEST_STOP_S, os._exit, (0,))
    last.daemon = True
    last.start()


def main(words: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.services.delay.main")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of its store")
    parser.add_argument("--group", default=GROUP)
    parser.add_argument("--instance")
    parser.add_argument("--admin-host", default="127.0.0.1")
    parser.add_argument("--admin-port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--end-with-parent", action="store_true")
    parser.add_argument("--log-level", default="INFO", choices=("INFO", "WARNING", "ERROR"))
    parser.add_argument("-X", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(words)
    keep_new_files_private()
    password = environment.get(delay_login.PASSWORD_VARIABLE)
    overrides = {} if password is None else delay_login.client_settings(password)
    overrides |= json.loads(environment.get(delay_login.SETTINGS_VARIABLE, "{}"))
    overrides |= dict(each.split("=", 1) for each in given.settings)
    at = connection(bootstrap=given.bootstrap, overrides=overrides)
    try:
        serve(
            at,
            folder=given.folder,
            group=given.group,
            instance=given.instance,
            admin_host=given.admin_host,
            admin_port=given.admin_port,
            end_with_parent=given.end_with_parent,
            log_level=getattr(logging, given.log_level),
        )
    except ClientError as failure:
        sys.stderr.write(f"{escaped(str(failure))}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
