"""The payment service: takes money from an account and tells the savings service, as one change."""

import os
import sys

from sqlalchemy import create_engine, text

from headrace import Outbox

engine = create_engine(os.environ.get("PAYMENT_DB", "sqlite:///payment.db"))
outbox = Outbox(engine)


def open_accounts(*names: str, balance: int = 1000) -> None:
    outbox.create()
    with engine.begin() as db:
        db.execute(text("CREATE TABLE accounts (name VARCHAR(50) PRIMARY KEY, balance INT)"))
        rows = [{"name": name, "balance": balance} for name in names]
        db.execute(text("INSERT INTO accounts VALUES (:name, :balance)"), rows)


def save(name: str, amount: int) -> None:
    """Move money into savings. The UPDATE locks the account, then the message is written."""
    with engine.begin() as db:
        taken = text(
            "UPDATE accounts SET balance = balance - :amount"
            " WHERE name = :name AND balance >= :amount"
        )
        if db.execute(taken, {"name": name, "amount": amount}).rowcount == 0:
            raise ValueError(f"{name} does not have {amount}")
        outbox.send(db, "transfers", {"account": name, "amount": amount}, key=name)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["open", *names]:
            open_accounts(*names)
        case ["save", name, amount]:
            save(name, int(amount))
        case _:
            sys.exit("payment.py open NAME... | payment.py save NAME AMOUNT")
