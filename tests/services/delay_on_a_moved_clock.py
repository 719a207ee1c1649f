"""The delay service as a process whose wall clock a test moves: by the number in a file, in ms.

Everything else is `headrace.services.delay.main`: its process, its signals, its own producers and
consumers. Monotonic time goes on as it does when somebody sets a machine's clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from headrace.client.connection import connection
from headrace.services.delay.main import serve
from headrace.services.delay.service import system_clock


def moved_by(file: Path) -> Callable[[], int]:
    return lambda: system_clock() + int(file.read_text())


def main() -> None:
    bootstrap, folder, port, moved = sys.argv[1:]
    serve(
        connection(bootstrap=bootstrap),
        folder=Path(folder),
        instance="one",
        admin_port=int(port),
        clock=moved_by(Path(moved)),
    )


if __name__ == "__main__":
    main()
