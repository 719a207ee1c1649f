"""RocketMQ 5.4: name server and broker, messages with a delivery time.

Settings are its own except where one machine needs others: smaller files for the log, so that it
does not reserve gigabytes, and a heap of 2 GB instead of the 8 GB of its start script. Flushing is
asynchronous, its default. `timerPrecisionMs` is 1000, its default; `ROCKETMQ_PRECISION_MS=100` is
the finest it takes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.brokers import free_port
from tests.interop.tools import run, tool

from .nats import wait_for_port
from .systems import HERE, HOST, RIVALS, DelaySystem

ROCKETMQ_VERSION = "5.4.0"
PRECISION_MS = os.environ.get("ROCKETMQ_PRECISION_MS", "1000")

OPENED = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
BROKER_FLAGS = ("-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=4g")
SMALL_FLAGS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC")


@functools.cache
def rocketmq_jars() -> Path:
    """The folder with RocketMQ's jars and our client; Maven fills it the first time (60 MB)."""
    folder = RIVALS / f"rocketmq-{ROCKETMQ_VERSION}"
    whole = folder / ".whole"
    if not whole.exists():
        pom = str(HERE / "rocketmq" / "pom.xml")
        goal = "dependency:copy-dependencies"
        run([tool("mvn"), "-q", "-B", "-f", pom, goal, f"-DoutputDirectory={folder}"])
        whole.touch()
    source = str(HERE / "rocketmq" / "DelayClient.java")
    run([tool("javac"), "-cp", f"{folder}/*", "-d", str(folder / "classes"), source])
    return folder


def java(flags: tuple[str, ...], main_class: str, *arguments: str) -> list[str]:
    jars = rocketmq_jars()
    class_path = f"{jars}/classes:{jars}/*"
    return [tool("java"), *flags, *OPENED, "-cp", class_path, main_class, *arguments]


def broker_port() -> int:
    """The broker takes two more ports, for replicas and for its fast lane."""
    while True:
        port = free_port()
        with contextlib.suppress(OSError):
            for neighbour in (port - 2, port + 1):
                with socket.socket() as probe:
                    probe.bind((HOST, neighbour))
            return port


@dataclass(slots=True)
class RocketMq(DelaySystem):
    broker_port: int = field(default_factory=broker_port)

    @property
    def _home(self) -> Path:
        return self.target.folder / "home"

    def start(self) -> None:
        if not self._home.exists():
            self._settle()
        home = {"ROCKETMQ_HOME": str(self._home)}
        names = ("-c", str(self._home / "conf" / "namesrv.conf"))
        user_home = f"-Duser.home={self.target.folder}"
        if "names" not in self.processes:
            self.spawn(
                "names",
                java(
                    (*SMALL_FLAGS, user_home),
                    "org.apache.rocketmq.namesrv.NamesrvStartup",
                    *names,
                ),
                **home,
            )
            wait_for_port(self, "names", self.target.port)
        settings = ("-c", str(self._home / "conf" / "broker.conf"))
        self.spawn(
            "broker",
            java(
                (*BROKER_FLAGS, user_home),
                "org.apache.rocketmq.broker.BrokerStartup",
                *settings,
            ),
            **home,
        )
        wait_for_port(self, "broker", self.broker_port)

    def _settle(self) -> None:
        conf = self._home / "conf"
        conf.mkdir(parents=True)
        (conf / "namesrv.conf").write_text(f"listenPort={self.target.port}\n")
        settings = {
            "brokerClusterName": "one",
            "brokerName": "one",
            "brokerId": "0",
            "brokerIP1": HOST,
            "namesrvAddr": f"{HOST}:{self.target.port}",
            "listenPort": str(self.broker_port),
            "autoCreateTopicEnable": "true",
            "storePathRootDir": str(self.target.data),
            "storePathCommitLog": str(self.target.data / "commitlog"),
            "mappedFileSizeCommitLog": str(256 << 20),
            "timerPrecisionMs": PRECISION_MS,
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (conf / "broker.conf").write_text(text)

    def create(self) -> None:
        done = subprocess.run(self.client("create"), capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"no topic: {done.stdout}{done.stderr}")

    def client(self, action: str) -> list[str]:
        words = [action, f"address={HOST}:{self.target.port}", f"topic={self.topic}"]
        flags = ("-Xmx1g", "-XX:+UseSerialGC", f"-Duser.home={self.target.folder}")
        return java(flags, "DelayClient", *words)

    def data_folders(self) -> list[Path]:
        return [self.target.data]
