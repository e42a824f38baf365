"""Random schedules for `ModeCluster`: draws the next event."""

import random
from collections.abc import Callable

from tests.unit.replication.mode_cluster import ENTERING, ISR, RAFT, ModeCluster, Node

STEPS = 900

#: The events of a node, and their relative frequency.
ACTIONS: dict[str, float] = {
    "fetch": 30,
    "flush": 15,
    "persist": 15,
    "learn": 20,
    "tick": 12,
    "produce": 12,
    "ask_raft": 6,
    "report": 4,
    "ask_tail": 8,
    "checkpoint": 2,
    "kill": 0.5,
    "power_loss": 1,
    "start": 6,
    "fence": 0.5,
    "unfence": 8,
    "stand": 2,
}


class Schedule:
    def __init__(self, cluster: ModeCluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        cluster.chance = self.chance.randrange
        self.trace: list[str] = []
        self._names = list(ACTIONS)
        self._weights = list(ACTIONS.values())

    def run(self, steps: int = STEPS) -> None:
        cluster, chance = self.cluster, self.chance
        for _ in range(steps):
            self.step()
            if cluster.has_given_up:
                return
            cluster.check()
        desired = RAFT if chance.random() < 0.5 else ISR
        cluster.controller.set_mode(desired)
        cluster.settle(90)
        cluster.check_settled(desired)

    def step(self) -> None:
        cluster, chance = self.cluster, self.chance
        kind = chance.random() if cluster.messages else 0.45 + 0.55 * chance.random()
        if kind < 0.45:
            number = min(chance.randrange(len(cluster.messages)), chance.randrange(4))
            number = min(number, len(cluster.messages) - 1)
            lost = chance.random() < 0.08
            self.trace.append(f"{'lose' if lost else 'deliver'} {cluster.messages[number].name}")
            if lost:
                cluster.lose(number)
            else:
                cluster.deliver(number)
        elif kind < 0.48:
            cluster.controller.step()
            self.trace.append(f"controller steps: {cluster.controller.state.mode.text}")
        elif kind < 0.487:
            mode = cluster.controller.state.mode
            rolls_back = mode is ENTERING and chance.random() < 0.15
            desired = ISR if mode is RAFT or rolls_back else RAFT
            cluster.controller.set_mode(desired)
            self.trace.append(f"wish {desired.text}")
        else:
            node = chance.choice(list(cluster.nodes.values()))
            name = chance.choices(self._names, self._weights)[0]
            self.trace.append(f"{name} {node.node_id}")
            self._act(name, node)

    def _act(self, name: str, node: Node) -> None:
        cluster, chance = self.cluster, self.chance
        if name == "tick":
            cluster.tick(node, chance.choice((0, 5, 20, 60, 150)))
        elif name == "learn":
            cluster.learn(node, chance.randint(1, 3))
        elif name == "power_loss":
            if cluster.may_stop(node):
                cluster.kill(node, keep=chance.randrange(3))
        elif name == "kill":
            if cluster.may_stop(node):
                cluster.kill(node)
        elif name == "checkpoint":
            if node.replica is not None:
                node.checkpoint = node.replica.high_watermark
        else:
            act: Callable[[Node], None] = getattr(cluster, name)
            act(node)
