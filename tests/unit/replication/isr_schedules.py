"""Random schedules of an `IsrCluster`, the same for the same seed."""

from random import Random

from lograft.model.types import NO_NODE
from lograft.replication.replica import IsrReplica
from tests.unit.replication.isr_cluster import IsrCluster, Node

#: The frequency of each event; faults are rare enough for progress between them.
WEIGHTS = {
    "produce": 12,
    "fetch": 30,
    "deliver": 60,
    "learn": 20,
    "tick": 4,
    "flush": 3,
    "checkpoint": 2,
    "delete_records": 1,
    "lose": 2,
    "kill": 0.6,
    "power": 0.8,
    "start": 4,
    "fence": 0.6,
    "unfence": 6,
    "move_leader": 0.6,
    "reassign": 0.8,
}
NAMES = list(WEIGHTS)
SHARES = list(WEIGHTS.values())


def new_cluster(
    random: Random,
    *,
    replica_type: type[IsrReplica] = IsrReplica,
    unclean_elections: bool = False,
    durable_only: bool = False,
) -> IsrCluster:
    nodes = random.choice([3, 3, 4])
    return IsrCluster(
        nodes=nodes,
        replicas=random.choice([3, 3, nodes]),
        min_isr=random.choice([1, 2, 2, 2, 3]),
        durable_only=durable_only or random.random() < 0.25,
        unclean_elections=unclean_elections,
        replica_type=replica_type,
    )


def run_schedule(cluster: IsrCluster, random: Random, *, steps: int) -> None:
    nodes = list(cluster.nodes.values())
    # Some schedules deliver in order, others delay a few messages for long.
    fifo = random.random() < 0.3
    for name in random.choices(NAMES, SHARES, k=steps):
        act(cluster, random, name, random.choice(nodes), fifo=fifo)
        cluster.check()
    cluster.heal()
    cluster.check_healed()


def act(cluster: IsrCluster, random: Random, name: str, node: Node, *, fifo: bool) -> None:
    match name:
        case "deliver" | "lose":
            if cluster.messages:
                number = 0 if fifo else random.randrange(len(cluster.messages))
                getattr(cluster, name)(number)
        case "produce" | "flush" | "delete_records" if random.random() < 0.7:
            # To a node that leads or considers itself leader.
            leaders = [n for n in cluster.nodes.values() if n.replica and n.replica.leader]
            if leaders:
                target = random.choice(leaders)
                if name == "delete_records":
                    cluster.delete_records(target, random.randrange(1, 6))
                else:
                    getattr(cluster, name)(target)
        case "learn":
            cluster.learn(node, random.randrange(1, 4))
        case "tick":
            cluster.tick(node, random.choice([1, 20, 60, 120]))
        case "delete_records":
            cluster.delete_records(node, random.randrange(1, 6))
        case "power":
            if cluster.may_lose_power(node):
                cluster.kill(node, keep=random.choice([0, 0, 1, 3]))
        case "move_leader":
            if cluster.controller.image.assignment.leader != NO_NODE:
                cluster.controller.move_leader(node.node_id)
        case "reassign":
            now = cluster.controller.image.assignment.replicas
            others = [other for other in cluster.nodes if other not in now]
            if others and len(now) == 3:
                chosen = [*random.sample(now, 2), random.choice(others)]
                cluster.controller.reassign(tuple(chosen))
        case _:
            getattr(cluster, name)(node)
