"""The payment service in FastAPI: the change and its message are one transaction of the request."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from sqlalchemy import update
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from headrace import Outbox

engine = create_async_engine(os.environ.get("PAYMENT_DB", "sqlite+aiosqlite:///payment.db"))
sessions = async_sessionmaker(engine)
outbox = Outbox(engine, os.environ.get("HEADRACE_BOOTSTRAP"))


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


Outbox.add_to(Base.metadata)  # create_all makes the outbox's tables too


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as db:
        await db.run_sync(Base.metadata.create_all)
    with outbox.relaying():  # a relay beside the service; many processes share the work
        yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan)


@api.post("/open/{name}", status_code=201)
async def open_account(name: str) -> None:
    async with sessions.begin() as db:
        db.add(Account(name=name, balance=1000))


@api.post("/save/{name}/{amount}", status_code=204)
async def save(name: str, amount: int) -> None:
    """Move money into savings. The UPDATE locks the account, then the message is written."""
    async with sessions.begin() as db:
        account = update(Account).where(Account.name == name, Account.balance >= amount)
        taken = await db.execute(account.values(balance=Account.balance - amount))
        if not taken.rowcount:
            raise HTTPException(409, f"{name} does not have {amount}")
        await outbox.send(db, "transfers", {"account": name, "amount": amount}, key=name)
