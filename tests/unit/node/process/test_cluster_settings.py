"""A node's place in its cluster, as its settings say it; the rules are Apache Kafka's."""

from __future__ import annotations

import logging

import pytest

from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.metadata.configs import broker_values
from headrace.node.process.listeners.addresses import split_listeners
from headrace.node.process.settings.cluster_settings import ClusterSettings, cluster_settings_of

BOTH = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
THREE = "one:9093,two:9093,three:9093"


def cluster(**settings: str) -> ClusterSettings:
    """`process_roles` stands for process.roles."""
    given = {"node.id": "1"} | {name.replace("_", "."): text for name, text in settings.items()}
    values = broker_values(given, {})
    return cluster_settings_of(values, given, *split_listeners(values))


def fault(**settings: str) -> str:
    with pytest.raises(BadValue) as refused:
        cluster(**settings)
    sentence = str(refused.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_a_node_that_is_told_nothing_is_alone() -> None:
    found = cluster()
    assert found.is_alone and found.is_broker and found.is_controller
    assert (found.controller_listener, found.broker_listener) == ("CONTROLLER", "PLAINTEXT")


def test_one_of_three_nodes_with_both_roles() -> None:
    found = cluster(listeners=BOTH, controller_quorum_bootstrap_servers=THREE)
    assert found.is_one_of_many and not found.is_alone
    assert found.bootstrap[0] == VoterEndpoint("CONTROLLER", "one", 9093)
    assert found.static_voters == ()


def test_static_voters_have_no_directory_id() -> None:
    found = cluster(listeners=BOTH, controller_quorum_voters="1@localhost:9093, 2@[::1]:9094")
    assert found.static_voters == (
        Voter(1, endpoints=(VoterEndpoint("CONTROLLER", "localhost", 9093),)),
        Voter(2, endpoints=(VoterEndpoint("CONTROLLER", "::1", 9094),)),
    )


def test_a_broker_by_itself_and_a_controller_by_itself() -> None:
    broker = cluster(process_roles="broker", controller_quorum_bootstrap_servers="one:9093")
    assert (broker.is_broker, broker.is_controller, broker.is_alone) == (True, False, False)
    controller = cluster(
        process_roles="controller",
        listeners="CONTROLLER://localhost:9093",
        controller_quorum_bootstrap_servers="one:9093",
    )
    assert (controller.is_broker, controller.broker_listener) == (False, None)


def test_a_node_whose_controller_others_can_reach_is_not_alone() -> None:
    assert not cluster(listeners=BOTH).is_alone, "a second one may join it"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"process_roles": "broker"}, "Name the controllers"),
        ({"process_roles": "controller", "listeners": "CONTROLLER://localhost:1"}, "Name the"),
        ({"process_roles": "broker", "listeners": BOTH}, "process.roles=broker opens none"),
        ({"process_roles": "controller", "listeners": BOTH}, "listeners for controllers only"),
        ({"listeners": "CONTROLLER://localhost:9093"}, "no entry for clients"),
        ({"controller_listener_names": ""}, "at least one listener"),
        ({"controller_quorum_bootstrap_servers": THREE}, "CONTROLLER://localhost:9093"),
        ({"controller_quorum_bootstrap_servers": "one"}, "a list of HOST:PORT, not 'one'"),
        ({"controller_quorum_voters": "one:9093"}, "a list of ID@HOST:PORT"),
        ({"controller_quorum_voters": "1@one:99999"}, "a list of ID@HOST:PORT"),
        ({"controller_quorum_voters": "1@a:1,1@b:1"}, "names the controller 1 twice"),
        ({"controller_quorum_voters": "2@a:1"}, "does not name node.id=1"),
        ({"process_roles": "broker", "controller_quorum_voters": "1@a:1"}, "must not be one"),
        ({"inter_broker_listener_name": "X"}, "inter.broker.listener.name=X is not in listeners"),
        ({"security_inter_broker_protocol": "SSL"}, "SSL is not in listeners"),
        (
            {
                "inter_broker_listener_name": "PLAINTEXT",
                "security_inter_broker_protocol": "PLAINTEXT",
            },
            "not both",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://localhost:1,CONTROLLER://localhost:2",
                "security_inter_broker_protocol": "SASL_PLAINTEXT",
                "sasl_enabled_mechanisms": "PLAIN",
                "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256",
                "controller_quorum_bootstrap_servers": THREE,
            },
            "must be in sasl.enabled.mechanisms",
        ),
    ],
)
def test_what_makes_no_sense_is_said(settings: dict[str, str], said: str) -> None:
    assert said in fault(**settings)


def test_heartbeats_that_are_too_rare_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cluster(broker_heartbeat_interval_ms="5000")
    assert "one late heartbeat fences the broker" in caplog.text
