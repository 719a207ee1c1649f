"""One worker of a queue, to be killed: writes each job that it handled into a ledger.

Every 50th job fails always, every other 10th at its first attempt.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.app import App, Message, Retry


def main(bootstrap: str, topic: str, ledger: str) -> None:
    app = App(bootstrap, group=f"{topic}.g", drain="5s")

    with Path(ledger).open("a", buffering=1) as lines:

        @app.on(topic, queue=True, concurrency=5, retry=Retry(4, first="100ms", longest="500ms"))
        def work(value: bytes, message: Message) -> None:
            number = int(value)
            if number % 50 == 0 or (number % 10 == 0 and message.attempt == 1):
                raise ValueError("no")
            lines.write(f"{number}\n")

        app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
