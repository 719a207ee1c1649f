"""The savings service: books each transfer once, and thanks the customer through its own outbox."""

import os

from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection

from headrace import App, Outbox, Sql

engine = create_engine(os.environ.get("SAVINGS_DB", "sqlite:///savings.db"))
outbox = Outbox(engine)
outbox.create()
with engine.begin() as made:
    made.execute(
        text("CREATE TABLE IF NOT EXISTS savings (name VARCHAR(50) PRIMARY KEY, balance INT)")
    )

app = App(os.environ.get("HEADRACE_BOOTSTRAP"), group="savings")


@app.on("transfers", once=Sql(engine), order_by="key")
def receive(transfer: dict, db: Connection) -> None:
    """Consume, change and send in one transaction."""
    booked = text("UPDATE savings SET balance = balance + :amount WHERE name = :account")
    if db.execute(booked, transfer).rowcount == 0:
        db.execute(text("INSERT INTO savings VALUES (:account, :amount)"), transfer)
    outbox.send(db, "thanks", f"thank you, {transfer['account']}", key=transfer["account"])
