"""The programs that the demonstration kills: `python -m headrace.cli.transfers.programs NAME ...`.

`savings` books with a memory of what it booked. `naive-payment` takes the money and then sends;
`naive-savings` books what it reads and commits its offsets now and then, as by default.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from sqlalchemy.engine import Connection

from headrace.app import App, Sql
from headrace.cli.transfers import bank
from headrace.client import Consumer, Producer


def savings(bootstrap: str, file: str) -> None:
    engine = bank.open_bank(Path(file))
    app = App(bootstrap, group="savings", settings=_member("savings"), delay="off")

    @app.on(bank.TOPIC, once=Sql(engine), order_by="key")
    def receive(transfer: dict[str, str | int], db: Connection) -> None:
        bank.book(db, str(transfer["account"]), int(transfer["amount"]), str(transfer["id"]))

    app.run()


def naive_payment(bootstrap: str, file: str, per_second: str) -> None:
    engine = bank.open_bank(Path(file))
    # Batches for throughput, and no waiting for ever: what many programs are set to.
    settings = {"linger.ms": 100, "message.timeout.ms": 2000}
    with Producer(bootstrap, settings=settings) as producer:
        for number in range(10**9):
            name = bank.account(number % bank.ACCOUNTS)
            transfer = f"{os.getpid()}-{number}"
            with engine.begin() as db:
                bank.book(db, name, -100, transfer)
            said = json.dumps({"id": transfer, "account": name, "amount": 100})
            producer.send_one_way(bank.NAIVE_TOPIC, said, key=name)
            time.sleep(1 / float(per_second))


def naive_savings(bootstrap: str, file: str) -> None:
    engine = bank.open_bank(Path(file))
    settings = _member("naive-savings")
    with Consumer(
        bootstrap,
        topics=[bank.NAIVE_TOPIC],
        group="naive-savings",
        auto_commit=True,
        auto_offset_reset="earliest",
        settings=settings,
    ) as consumer:
        while True:
            record = consumer.poll(timeout_s=1)
            if record is not None:
                said = json.loads(record.value or b"{}")
                with engine.begin() as db:
                    bank.book(db, said["account"], said["amount"], said["id"])


def _member(name: str) -> dict[str, str | int | float | bool]:
    """One that comes back after a kill has its partitions at once."""
    return {"group.instance.id": name, "session.timeout.ms": 10_000}


PROGRAMS = {"savings": savings, "naive-payment": naive_payment, "naive-savings": naive_savings}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])  # type: ignore[operator]
