"""A shop that logs ten minutes of its life into a file; in two of them cards are refused."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
BAD_MINUTES = (3, 4)


def lines() -> list[str]:
    found = []
    for second in range(0, 600, 10):
        at = BEGIN + timedelta(seconds=second)
        order = second // 10
        if second // 60 in BAD_MINUTES:
            said = f"ERROR shop: card of order {order} refused"
        else:
            said = f"INFO shop: order {order} paid"
        found.append(f"{at:%Y-%m-%d %H:%M:%S},000 {said}")
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(lines()) + "\n")
