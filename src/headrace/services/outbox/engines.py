"""The engine of a relay or a command, made from a database's URL.

A relay works with threads: for an asyncio driver it uses the driver without asyncio.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from headrace.services.outbox import databases
from headrace.services.outbox.schema import OutboxError

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgresql+asyncpg": "postgresql+psycopg",
    "postgresql+psycopg_async": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mysql+aiomysql": "mysql+pymysql",
    "mysql+asyncmy": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "mariadb+aiomysql": "mariadb+pymysql",
    "mariadb+asyncmy": "mariadb+pymysql",
    "sqlite+aiosqlite": "sqlite",
}
CONNECTIONS = 5
# SQLAlchemy puts the driver's own class before the database's message.
_DRIVERS_CLASS = re.compile(r"^\([\w.]+\) ")
SQLITE_PATIENCE_S = 30


def engine_for(url: str) -> Engine:
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))
        backend = parsed.get_backend_name()
        if backend not in databases.NAMES:
            raise OutboxError(
                f"The outbox knows PostgreSQL, MariaDB (MySQL) and SQLite, not {backend}."
            )
        if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise OutboxError(
                "A SQLite database in memory is seen by one program alone; name a file: "
                "sqlite:///file.db, or sqlite:////with/its/whole/path.db."
            )
        engine = create_engine(
            parsed,
            pool_size=CONNECTIONS,
            max_overflow=64,
            pool_pre_ping=True,
            # SQLite has one writer at a time: the application's come first.
            connect_args={"timeout": SQLITE_PATIENCE_S} if backend == "sqlite" else {},
        )
        if backend == "sqlite":
            event.listen(engine, "connect", _read_any_text)
        return engine
    except (ArgumentError, NoSuchModuleError, ValueError) as wrong:
        raise OutboxError(
            "That is not the URL of a database; write it like postgresql://user@host/name, "
            "mariadb://user@host/name or sqlite:///file.db."
        ) from wrong
    except ModuleNotFoundError as missing:
        raise OutboxError(
            f"The driver {missing.name} of this database is not installed: pip install "
            f"{missing.name}."
        ) from missing


def _read_any_text(connection: Any, _: object) -> None:
    """SQLite keeps text that is not UTF-8, and its driver refuses a whole query for one such value:
    no row behind it could be read. Here it is bytes, and the reader of the row decides."""
    connection.text_factory = _text_or_bytes


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def require_file(engine: Engine) -> None:
    """Refuses a missing file: SQLite would create an empty one even for a command that only
    reads."""
    name = engine.url.database
    if engine.dialect.name == "sqlite" and name and not name.startswith("file:"):
        path = Path(name)
        if not path.exists():
            raise OutboxError(
                f"There is no file {path}: see the path in the URL (sqlite:////x.db begins at the "
                "root, sqlite:///x.db in this folder), or make it with `headrace outbox init`."
            )


def first_line(error: BaseException) -> str:
    """Returns the first line of a database's message, without its driver's class before it."""
    return _DRIVERS_CLASS.sub("", str(error).partition("\n")[0])
