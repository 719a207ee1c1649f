"""A stand-in for a node under a parent: does what the order's settings tell it to."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

from headrace.node.process.local_cluster.child import Line, Order

line = Line(socket.socket(fileno=int(sys.argv[1])))
[told] = line.hear() or []
order = Order(**told)
how = order.overrides.get("how", "")
print(f"hello from {order.node}", flush=True)  # noqa: T201
ready = f"{order.data[:-1]}1.ready"
if how == "refuses":
    while not os.path.exists(ready):  # or node 1 would be asked to stop before it can
        time.sleep(0.01)
    line.tell({"refused": "the port is taken."})
    sys.exit(3)
ended = f"{order.data}.ended"


def end(*_: object) -> None:
    with open(ended, "a", encoding="ascii") as file:
        file.write(f"{time.monotonic_ns()}\n")
    print("half a line", end="", flush=True)  # noqa: T201
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
open(f"{order.data}.ready", "w").close()
line.tell({"ready": {"address": "nowhere", "pid": os.getpid(), "broker_epoch": order.node}})
while (heard := line.hear()) is not None:
    for message in heard:
        print(f"heard {message}", flush=True)  # noqa: T201
end()
