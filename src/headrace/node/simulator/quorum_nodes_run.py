"""One run of whole quorum nodes: power cuts, cuts of the network and appends from a seed."""

from __future__ import annotations

from headrace.node.consensus.quorum.machine import Timeouts
from headrace.node.consensus.quorum.roles import Leader
from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.counters import Counters
from headrace.node.simulator.quorum_nodes import QuorumNodes
from headrace.node.simulator.world import World

BLOWS = 60
CALM_MS = 10_000
STEP_MS = 200
TIMEOUTS = Timeouts(
    election_ms=100,
    fetch_ms=200,
    election_backoff_max_ms=100,
    request_ms=200,
    retry_backoff_ms=25,
    fetch_wait_ms=50,
)


def run_nodes_seed(seed: int) -> Counters:
    """Raises Violation, or what the node raises when it sees that a promise was broken."""
    world = World(seed)
    cluster = QuorumNodes(world, voters=world.chance.choice((3, 3, 5)), timeouts=TIMEOUTS)
    _trouble(cluster)
    _end_well(cluster)
    cluster.counters.events = world.events
    return cluster.counters


def _trouble(cluster: QuorumNodes) -> None:
    world, chance, network = cluster.world, cluster.world.chance, cluster.network
    network.loss = chance.choice((0.0, 0.1))
    network.duplication = chance.choice((0.0, 0.1))
    network.delays_ms = chance.choice(((1,), (1, 5), (1, 50)))
    cluster.flush_ms = chance.choice(((1,), (1, 30), (100,)))
    cluster.down_ms = chance.choice((10, 300))
    for _ in range(BLOWS):
        world.run(chance.choice((1, 10, 100, 300)))
        node = chance.choice(list(cluster.nodes.values()))
        match chance.randrange(10):
            case 0:
                node.crash()
            case 1:
                cluster.power_cut()
            case 2:
                cluster.counters.cuts += 1
                sends = chance.choice((False, True))
                network.isolate(node.id, cluster.nodes, sends=sends, hears=False)
            case 3:
                network.heal()
            case _:
                for _ in range(chance.choice((1, 5))):
                    cluster.append()


def _end_well(cluster: QuorumNodes) -> None:
    cluster.network.calm()
    cluster.flush_ms, cluster.down_ms = (1,), 1
    for _ in range(CALM_MS // STEP_MS):
        cluster.world.run(STEP_MS)
        before = cluster.counters.acknowledged
        cluster.append()
        cluster.world.run(STEP_MS)
        if cluster.counters.acknowledged > before and _agree(cluster):
            cluster.checker.finish()
            return
    raise Violation("the nodes do not agree after the faults ended")


def _agree(cluster: QuorumNodes) -> bool:
    hosts = [node.host for node in cluster.nodes.values()]
    quorums = [host.quorum for host in hosts if host is not None]
    leaders = [quorum for quorum in quorums if isinstance(quorum.role, Leader)]
    if len(quorums) < len(hosts) or len(leaders) != 1:
        return False
    return all(quorum.high_watermark == leaders[0].log.end_offset for quorum in quorums)
