"""Brokers whose controller is in another process: they join, fall silent, come back and leave."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import broker_heartbeat
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from headrace.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.unit.node.broker.cluster.remote_controller import RemoteBroker, RemoteController


def test_two_brokers_join_and_stay(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    two, three = RemoteBroker(controller, 2).starts(), RemoteBroker(controller, 3).starts()
    assert two.membership.is_unfenced and three.membership.is_unfenced
    assert not two.is_fenced and not three.is_fenced
    assert two.membership.lifecycle.epoch == two.this.epoch
    controller.passes(20_000)
    assert not two.is_fenced and not three.is_fenced, "their heartbeats are heard"


def test_a_broker_is_not_unfenced_before_it_has_replayed_its_registration(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    broker = RemoteBroker(controller)
    broker.lags = True
    broker.starts()
    controller.passes(20_000)
    assert broker.is_fenced, "alive, and not up to date"
    broker.lags = False
    broker.follows(controller.image)
    controller.until_idle()
    assert not broker.is_fenced


def test_a_silent_broker_is_fenced_and_comes_back(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    broker = RemoteBroker(controller).starts()
    epoch = broker.this.epoch
    controller.is_reachable = False
    controller.passes(12_000)
    assert broker.is_fenced
    controller.is_reachable = True
    controller.passes(3_000)
    assert not broker.is_fenced and broker.this.epoch == epoch, "it is the same start"


def test_a_broker_waits_for_a_controller_that_comes_later(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    place, controller.place = controller.place, None
    broker = RemoteBroker(controller).starts()
    controller.passes(5_000)
    assert controller.asked == [], "nobody is there to be asked"
    controller.place = place
    controller.until_idle()
    assert broker.membership.is_unfenced, "and it is asked at once"


def test_leadership_is_handed_over_before_the_broker_stops(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    two, three = RemoteBroker(controller, 2).starts(), RemoteBroker(controller, 3).starts()
    assignment = CreatableReplicaAssignment(0, [2, 3])
    topic = CreatableTopic("orders", -1, -1, [assignment])
    controller.quorum.controller.create_topics(CreateTopicsRequest([topic]), controller.now)
    controller.until_idle()
    controller.passes(2_000)
    led: list[int] = []
    three.lags = True
    two.membership.leave(lambda: led.append(three.image.topics["orders"].partitions[0].leader))
    controller.passes(3_000)
    assert controller.image.topics["orders"].partitions[0].leader == 3
    assert led == [], "the new leader does not know yet that it leads"
    three.lags = False
    three.follows(controller.image)
    controller.passes(4_000)
    assert led == [3]
    assert two.is_fenced


def test_a_broker_that_was_unregistered_registers_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controller = RemoteController(tmp_path)
    broker = RemoteBroker(controller).starts()
    epoch = broker.this.epoch

    def forgotten(messages: object, request: object) -> BrokerHeartbeatResponse | None:
        if messages is not broker_heartbeat:
            return None
        controller.answer_instead = lambda *_: None
        return BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)

    controller.answer_instead = forgotten
    with caplog.at_level(logging.WARNING):
        controller.passes(3_000)
    assert "the controller does not know this broker: it registers again" in caplog.text
    assert broker.membership.is_unfenced and broker.this.epoch == epoch, "the same incarnation"


def test_a_second_process_of_the_same_id_waits_for_the_firsts_session(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    first = RemoteBroker(controller).starts()
    controller.brokers.clear()  # it is killed
    second = RemoteBroker(controller, incarnation_id=b"second".ljust(16)).starts()
    controller.passes(8_000)
    assert not second.membership.is_unfenced
    controller.passes(4_000)
    assert second.membership.is_unfenced and second.this.epoch > first.this.epoch


def test_a_broker_of_another_cluster_ends_with_a_sentence(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    broker = RemoteBroker(controller, cluster_id="another").starts()
    assert broker.membership.failure is not None
    assert "another cluster" in broker.membership.failure
    assert broker.this.id not in controller.image.brokers


def test_a_broker_that_nobody_hears_stops_after_a_session(tmp_path: Path) -> None:
    controller = RemoteController(tmp_path)
    broker = RemoteBroker(controller).starts()
    controller.is_reachable = False
    left: list[bool] = []
    broker.membership.leave(lambda: left.append(True))
    controller.passes(8_000)
    assert not left
    controller.passes(1_500)
    assert left == [True]
