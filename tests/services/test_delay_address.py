"""Where the delay service can be asked, after a restart too."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headrace.client.connection import ClientSettings
from headrace.client.delay.instances import DelayInstances
from tests.interop.brokers import TARGET, make_node
from tests.patience import until
from tests.services.delay_checker import make_delayed_topic
from tests.services.delay_process import DelayProcess


@pytest.mark.timeout(600)
def test_an_instance_whose_port_was_taken_meanwhile_is_found_at_its_new_one(tmp_path: Path) -> None:
    # The group keeps the client id of a static member from one run to the next, and the client id
    # holds the address.
    settings = {"headrace.delay.service": "off"} if TARGET == "headrace" else {}
    with make_node(TARGET, tmp_path / "node", settings) as node:
        make_delayed_topic(node.bootstrap, "orders", 1)
        instances = DelayInstances(ClientSettings({"bootstrap.servers": node.bootstrap}))
        with DelayProcess(node.bootstrap, tmp_path) as service, socket.socket() as somebody_else:
            [first] = until(instances.all, "it is not in its group")
            service.kill()
            somebody_else.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            somebody_else.bind(("127.0.0.1", service.port))
            somebody_else.listen()
            service.start()
            until(
                lambda: any(each.address != first.address for each in instances.all()),
                "it is not at another address",
            )
            [(asked, stats)] = instances.stats()
            assert asked.address != first.address and stats["instance"] == "one"
