"""A bank in one SQLite file: accounts, and each credit that was ever booked.

Nothing here keeps a transfer from being booked twice: that is what the demonstration is about.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import Connection

ACCOUNTS = 20
FIRST_BALANCE = 1_000_000
TOPIC, NAIVE_TOPIC = "transfers", "transfers-without-outbox"


def open_bank(file: Path) -> Engine:
    engine = create_engine(f"sqlite:///{file}", connect_args={"timeout": 30})

    @event.listens_for(engine, "connect")
    def connected(connection: object, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]
        connection.execute("PRAGMA busy_timeout = 30000")  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def begun(db: Connection) -> None:
        if db.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            db.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def found(engine: Engine, *, balance: int) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        db.exec_driver_sql("PRAGMA journal_mode = WAL")
    with engine.begin() as db:
        db.execute(text("CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER)"))
        db.execute(text("CREATE TABLE booked (transfer TEXT, amount INTEGER)"))
        rows = [{"name": account(number), "balance": balance} for number in range(ACCOUNTS)]
        db.execute(text("INSERT INTO accounts VALUES (:name, :balance)"), rows)


def account(number: int) -> str:
    return f"account-{number:02}"


def book(db: Connection, name: str, amount: int, transfer: str) -> None:
    change = text("UPDATE accounts SET balance = balance + :amount WHERE name = :name")
    db.execute(change, {"amount": amount, "name": name})
    booked = text("INSERT INTO booked VALUES (:transfer, :amount)")
    db.execute(booked, {"transfer": transfer, "amount": abs(amount)})


def total(engine: Engine) -> int:
    with engine.connect() as db:
        return int(db.execute(text("SELECT sum(balance) FROM accounts")).scalar_one())


def transfers(engine: Engine) -> dict[str, int]:
    """How often each transfer was booked."""
    with engine.connect() as db:
        rows = db.execute(text("SELECT transfer, count(*) FROM booked GROUP BY transfer"))
        return {str(row[0]): int(row[1]) for row in rows}
