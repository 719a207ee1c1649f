"""A queue of mails: as many workers as you like, each mail goes to one of them."""

from __future__ import annotations

import os
from pathlib import Path

from headrace import App, Message, Retry

app = App(os.environ.get("KAFKA", "localhost:9092"), group="mailers")
OUTBOX = Path(os.environ.get("OUTBOX", "sent.txt"))


@app.on("mails", queue=True, concurrency=10, retry=Retry(attempts=4, first="200ms", longest="1m"))
def send(mail: dict[str, str], message: Message) -> None:
    if "@" not in mail["to"]:
        raise ValueError(f"{mail['to']!r} is not an address")
    with OUTBOX.open("a") as file:  # in the place of a mail server
        file.write(f"{mail['to']} attempt {message.attempt}\n")


if __name__ == "__main__":
    app.run()
