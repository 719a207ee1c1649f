"""A controller that is not the active one registers with it, once per start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace.node.assembly.standby_registration import REST_MS, StandbyRegistration
from headrace.node.broker.cluster.controller_channel import ControllerChannel
from headrace.node.controller.members.brokers import Membership
from headrace.node.metadata.image import Endpoint
from headrace.wire.protocol.messages import controller_registration
from tests.unit.node.broker.cluster.remote_controller import RemoteController

ENDPOINT = Endpoint("CONTROLLER", "node-2", 9093, 0)


def a_standby(controller: RemoteController, incarnation: bytes = b"first") -> StandbyRegistration:
    membership = Membership(
        2, bytes(16), (), (ENDPOINT,), (), controller_incarnation_id=incarnation.ljust(16)
    )
    channel = ControllerChannel(
        controller, lambda: controller.place, controller.purgatory, controller.now, "controller"
    )
    return StandbyRegistration(channel, membership, controller.now, lambda: controller.image)


def looks(controller: RemoteController, standby: StandbyRegistration, times: int = 1) -> None:
    for _ in range(times):
        standby.look()
        controller.until_idle()
        controller.passes(REST_MS)


def test_it_registers_once_per_start(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    looks(controller, a_standby(controller), times=3)
    assert controller.image.controllers[2].endpoints == (ENDPOINT,)
    assert len(controller.asked) == 1
    looks(controller, a_standby(controller, b"second"), times=3)
    assert controller.image.controllers[2].incarnation_id == b"second".ljust(16)
    assert len(controller.asked) == 2


def test_it_tries_again_until_a_controller_is_there(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    controller.is_active = False
    standby = a_standby(controller)
    looks(controller, standby, times=3)
    assert 2 not in controller.image.controllers
    controller.is_active = True
    looks(controller, standby)
    assert 2 in controller.image.controllers


def test_a_refusal_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    controller = RemoteController(tmp_path)
    controller.answer_instead = lambda *_: controller_registration.ControllerRegistrationResponse(
        error_code=35, error_message="too old"
    )
    with caplog.at_level(logging.WARNING):
        looks(controller, a_standby(controller), times=3)
    assert caplog.text.count("does not register this one: too old") == 1
    assert len(controller.asked) == 3
