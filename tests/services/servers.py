"""PostgreSQL, MariaDB and Redis as a user runs them: real servers, free ports, own folders.

Started by the tests that need them and ended with them, by their process id. Debian's packages
bring them (`make services` installs what is missing). The databases refuse to run as root, so
they are given to the users that Debian made for them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import free_port

START_S = 300


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path | None = None) -> None:
    """`log` is what the server writes: its end is told if it does not listen."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    said = "" if log is None else log.read_text(errors="replace")[-4_000:]
    raise AssertionError(f"nothing listens on {port} after {START_S} s\n{said}")


class Redis:
    """One Redis server; `stop` and `start` make it disappear for a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
            + ["--dir", str(self.folder)],
            stdout=subprocess.DEVNULL,
        )
        _wait_for_port(self.port, self.process)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Postgres:
    """One PostgreSQL cluster with the database `postgres`; trusts whoever comes by loopback.

    Tests kill processes, not machines, so nothing need reach the disk; `fsync` is for benchmarks.
    """

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self.folder, self._fsync = folder, fsync
        self.port = free_port()
        self.place = f"127.0.0.1:{self.port}/postgres"
        self.process: subprocess.Popen[bytes] | None = None
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "headrace", "-N")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://headrace@{self.place}"

    @property
    def async_url(self) -> str:
        return f"postgresql+asyncpg://headrace@{self.place}"

    def start(self) -> None:
        command = ["-D", str(self.folder / "data"), "-p", str(self.port), "-h", "127.0.0.1"]
        # Four workers with a pool each want more connections than its default of 100.
        command += ["-c", f"fsync={'on' if self._fsync else 'off'}", "-c", "max_connections=300"]
        command += ["-c", "max_prepared_transactions=5"]
        self.process = subprocess.Popen(
            [*self._as, _postgres_program("postgres"), *command, "-k", str(self.folder)],
            stderr=(self.folder / "log").open("ab"),
        )
        _wait_for_port(self.port, self.process, self.folder / "log")
        deadline = time.monotonic() + START_S
        ready = [_postgres_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert time.monotonic() < deadline, "PostgreSQL does not get ready"
            time.sleep(0.02)

    def stop(self) -> None:
        """At once, as a crash would: SIGQUIT; it recovers at the next start."""
        if self.process is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                postmaster = (self.folder / "data" / "postmaster.pid").read_text().split()[0]
                os.kill(int(postmaster), signal.SIGQUIT)
            self.process.wait()
            self.process = None

    def kill(self) -> None:
        """kill -9 of the server and of every process of it; it starts when all are gone."""
        if self.process is not None:
            postmaster = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
            family = [postmaster, *_children(postmaster)]
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            deadline = time.monotonic() + START_S
            while any(_is_running(pid) for pid in family):
                assert time.monotonic() < deadline, "a process of PostgreSQL outlives kill -9"
                time.sleep(0.005)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as, _postgres_program(program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
        )


class Mariadb:
    """One MariaDB server with the database `shop`; trusts whoever comes by loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"mysql+pymysql://root@127.0.0.1:{self.port}/shop?charset=utf8mb4"
        self.process: subprocess.Popen[bytes] | None = None
        self._user = ["--user=mysql"] if os.geteuid() == 0 else []
        if self._user:
            owner = pwd.getpwnam("mysql")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        (folder / "init.sql").write_text("CREATE DATABASE IF NOT EXISTS shop;\n")
        self._make_database()

    def _make_database(self) -> None:
        """Failed once on a busy machine without a word: it says why now, and is tried again."""
        data = self.folder / "data"
        said = ""
        for _ in range(2):
            made = subprocess.run(
                ["mariadb-install-db", "--no-defaults", f"--datadir={data}", *self._user]
                + ["--auth-root-authentication-method=normal", "--skip-test-db"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                cwd=self.folder,
            )
            if made.returncode == 0:
                return
            logs = [path.read_text(errors="replace") for path in data.glob("*.err")]
            free = shutil.disk_usage(self.folder).free >> 20
            said += f"exit status {made.returncode}, {free} MiB free in {self.folder}\n"
            said += "\n".join([made.stdout, *logs])[-4_000:]
            warnings.warn(f"mariadb-install-db failed: {said}", stacklevel=2)
            shutil.rmtree(data, ignore_errors=True)  # half a database is not gone on with
        raise AssertionError(f"mariadb-install-db failed twice:\n{said}")

    def start(self) -> None:
        server = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        self.process = subprocess.Popen(
            [server, "--no-defaults", f"--datadir={self.folder / 'data'}", *self._user]
            + [f"--port={self.port}", "--bind-address=127.0.0.1"]
            + [f"--socket={self.folder / 'door'}", f"--init-file={self.folder / 'init.sql'}"],
            stderr=(self.folder / "log").open("ab"),
        )
        _wait_for_port(self.port, self.process, self.folder / "log")

    def stop(self) -> None:
        """At once, as a crash would; it recovers at the next start."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    kill = stop


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_running(pid: int) -> bool:
    """One that has ended and was not asked for its exit status holds no memory any more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _postgres_program(name: str) -> str:
    """Debian keeps the server's programs beside the path, by version."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None
    )
    if found is None:
        pytest.fail(f"{name} is not installed: run `make services`")
    return found


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """Not pytest's: the user postgres must be able to reach it."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-services-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with _own_folder() as folder:
        server = Postgres(folder)
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with _own_folder() as folder:
        server = Redis(folder)
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Mariadb]:
    if shutil.which("mariadb-install-db") is None:
        pytest.fail("mariadb-install-db is not installed: run `make services`")
    with _own_folder() as folder:
        server = Mariadb(folder)
        server.start()
        yield server
        server.stop()
