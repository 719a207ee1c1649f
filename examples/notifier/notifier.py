"""Greets new users, and reminds those who have not come back after a day.

    headrace app run notifier:app

With REDIS_URL set, nobody is greeted twice after a crash or a double click.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from headrace import App, Publish, Redis, Retry

app = App(os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092"), group="notifier")
once = Redis(os.environ["REDIS_URL"], keep="24h") if "REDIS_URL" in os.environ else None


@dataclass
class User:
    id: str
    mail: str


@dataclass
class Notice:
    mail: str
    words: str


sent: list[Notice] = []  # stands for the mail server
came_back: set[str] = set()


@app.on("users.new", once=once)
def greet(user: User) -> list[Publish]:
    """Say hello now and plan a reminder for tomorrow."""
    return [
        Publish("notices", Notice(user.mail, "Welcome!")),
        Publish("users.remind", user, key=user.id, delay="24h"),
    ]


@app.on("users.back")
def remember(user: User) -> None:
    came_back.add(user.id)


@app.on("users.remind", publish="notices")
def remind(user: User) -> Notice | None:
    """A day later: nothing if the user was here."""
    return None if user.id in came_back else Notice(user.mail, "We have missed you.")


@app.on(
    "notices",
    concurrency=64,
    retry=Retry(attempts=5, first="1s", longest="1m", time_limit="10s"),
)
async def send(notice: Notice) -> None:
    """Mail it; 64 at a time, in no order."""
    sent.append(notice)
