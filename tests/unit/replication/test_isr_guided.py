"""Schedules that random runs do not find: each is safe, except if its rule is omitted."""

from collections.abc import Callable

import pytest

from lograft.model.types import NodeId
from tests.unit.replication.isr_cluster import IsrCluster, Node, Violation
from tests.unit.replication.isr_mutants import (
    JOINS_UNKNOWN,
    LATE_ANSWERS,
    NO_BROKER_EPOCH_READ,
    NO_BROKER_EPOCH_SENT,
    NO_LEADER_EPOCH,
    OLD_REGISTRATION,
    SAME_EPOCH_WITHOUT_REPLICA,
    UNKNOWN_OUTCOME,
    Mutant,
)


class Guide:
    """Four nodes, three replicas, MinISR 2, node 1 leads; all invariants are checked after every
    step."""

    def __init__(self, mutant: Mutant | None) -> None:
        if mutant is None:
            self.cluster = IsrCluster(nodes=4)
        else:
            self.cluster = IsrCluster(nodes=4, replica_type=mutant.replica_type())
            if mutant.change is not None:
                mutant.change(self.cluster)

    def node(self, number: int) -> Node:
        return self.cluster.nodes[NodeId(number)]

    def do(self, name: str, number: int) -> None:
        getattr(self.cluster, name)(self.node(number))
        self.cluster.check()

    def power_loss(self, number: int) -> None:
        self.cluster.kill(self.node(number), keep=0)
        self.cluster.check()

    def learn(self, *numbers: int) -> None:
        for number in numbers:
            self.cluster.learn(self.node(number), 100)
            self.cluster.check()

    def lead(self, number: int) -> None:
        self.cluster.controller.move_leader(self.node(number).node_id)
        self.cluster.check()

    def reassign(self, *numbers: int) -> None:
        self.cluster.controller.reassign(tuple(NodeId(number) for number in numbers))
        self.cluster.check()

    def wait_ms(self, passed_ms: int) -> None:
        self.cluster.now_ms += passed_ms

    def arrive(self, name: str) -> None:
        self.cluster.deliver(self._number(name))
        self.cluster.check()

    def vanish(self, name: str) -> None:
        self.cluster.lose(self._number(name))
        self.cluster.check()

    def fetch(self, number: int, leader: int) -> None:
        """A complete fetch with its response."""
        self.do("fetch", number)
        self.arrive(f"fetch {number}>{leader}")
        self.arrive(f"answer {leader}>{number}")

    def _number(self, name: str) -> int:
        names = [message.name for message in self.cluster.messages]
        assert name in names, names
        # The newest message of that name: older ones are delayed deliberately.
        return len(names) - 1 - names[::-1].index(name)

    def oldest(self, name: str) -> None:
        names = [message.name for message in self.cluster.messages]
        self.cluster.deliver(names.index(name))
        self.cluster.check()

    def leave_and_return(self, number: int) -> None:
        """The node is removed from the ISR and running again."""
        self.do("fence", number)
        self.do("unfence", number)
        self.learn(1, 2, 3)


def unknown_outcome(go: Guide) -> None:
    """The expansion was applied, but the response is lost: the new member counts immediately."""
    go.leave_and_return(3)
    go.fetch(3, 1)
    go.arrive("alter 1")
    go.vanish("granted 1")
    go.wait_ms(120)
    go.do("produce", 1)
    go.fetch(2, 1)
    go.fetch(2, 1)


def fetch_of_an_older_epoch(go: Guide) -> None:
    """Node 3 fetched from leader 1 in epoch 0 and truncated its log under leader 2; the old request
    arrives when 1 leads again."""
    go.do("produce", 1)
    go.fetch(3, 1)
    go.do("fetch", 3)
    go.lead(2)
    go.learn(2, 3)
    go.fetch(3, 2)
    go.lead(1)
    go.learn(1, 2)
    go.fetch(2, 1)  # discards its own epoch, which has no record
    go.fetch(2, 1)
    go.do("fetch", 2)
    go.arrive("fetch 2>1")
    go.oldest("fetch 3>1")


def expansion_meets_a_new_life(go: Guide) -> None:
    """Node 3 loses its log between its fetch and the controller's decision to add it."""
    go.leave_and_return(3)
    go.do("produce", 1)
    go.fetch(2, 1)
    go.fetch(3, 1)
    go.fetch(3, 1)
    go.fetch(2, 1)
    assert len(go.cluster.acked) == 1
    go.power_loss(3)
    go.do("start", 3)
    go.do("unfence", 3)
    go.arrive("alter 1")


def fetch_of_an_older_life(go: Guide) -> None:
    """A fetch from before the power loss arrives when the node is in the ISR again."""
    go.do("kill", 2)
    go.do("fence", 2)
    go.learn(1, 3)
    go.do("produce", 1)
    go.fetch(3, 1)
    go.do("fetch", 3)
    go.power_loss(3)
    go.do("start", 3)
    go.do("unfence", 3)
    go.learn(1, 3)
    go.do("fetch", 3)
    go.arrive("fetch 3>1")
    go.arrive("alter 1")
    go.arrive("granted 1")
    go.oldest("fetch 3>1")


def late_divergence(go: Guide) -> None:
    """Leader 1 requests a truncation by node 3; the response arrives when leader 2 has committed
    the record."""
    go.lead(2)
    go.learn(2, 3)
    go.do("produce", 2)
    go.fetch(3, 2)
    go.lead(1)
    go.learn(1, 3)
    go.do("fetch", 3)
    go.arrive("fetch 3>1")
    go.lead(2)
    go.do("fence", 1)
    go.learn(2, 3)
    go.do("fetch", 3)
    go.arrive("fetch 3>2")
    go.arrive("answer 1>3")


def fetch_of_a_former_replica(go: Guide) -> None:
    """Node 3 is removed and added by reassignments, with an empty log; its earlier fetch arrives
    late."""
    go.do("produce", 1)
    go.fetch(2, 1)
    go.fetch(2, 1)
    go.fetch(3, 1)
    go.do("fetch", 3)
    go.reassign(1, 2, 4)
    go.learn(1, 4)
    go.fetch(4, 1)
    go.arrive("alter 1")
    go.arrive("granted 1")
    go.reassign(1, 2, 3)
    go.learn(1, 2, 3, 4)
    go.fetch(2, 1)
    go.fetch(4, 1)
    go.fetch(4, 1)
    assert go.node(1).log.end_offset == len(go.cluster.committed) == 1
    go.oldest("fetch 3>1")
    if any(message.name == "alter 1" for message in go.cluster.messages):
        go.arrive("alter 1")


def divergence_was_deleted(go: Guide) -> None:
    """Node 1 wrote a record that no other node has; another one was committed at its offset and
    then deleted. The leader has no information that node 1 has the wrong record."""
    go.do("produce", 1)
    go.do("fence", 1)
    go.learn(2, 3)
    go.do("produce", 2)
    go.fetch(3, 2)
    go.fetch(3, 2)
    assert len(go.cluster.committed) == 1
    go.cluster.delete_records(go.node(2), 1)
    go.do("unfence", 1)
    go.learn(1, 2, 3)
    go.do("fetch", 1)
    go.arrive("fetch 1>2")
    if any(message.name == "alter 2" for message in go.cluster.messages):
        go.arrive("alter 2")
    go.arrive("answer 2>1")
    go.fetch(1, 2)
    go.arrive("alter 2")
    assert set(go.cluster.controller.image.assignment.isr) == {1, 2, 3}


CASES = [
    (unknown_outcome, UNKNOWN_OUTCOME),
    (fetch_of_an_older_epoch, NO_LEADER_EPOCH),
    (expansion_meets_a_new_life, NO_BROKER_EPOCH_SENT),
    (expansion_meets_a_new_life, NO_BROKER_EPOCH_READ),
    (fetch_of_an_older_life, OLD_REGISTRATION),
    (late_divergence, LATE_ANSWERS),
    (divergence_was_deleted, JOINS_UNKNOWN),
    (fetch_of_a_former_replica, SAME_EPOCH_WITHOUT_REPLICA),
]


@pytest.mark.parametrize(
    ("schedule", "mutant"), CASES, ids=lambda case: getattr(case, "__name__", str(case))
)
def test_each_rule_is_needed(schedule: Callable[[Guide], None], mutant: Mutant) -> None:
    with pytest.raises(Violation):
        schedule(Guide(mutant))
    go = Guide(None)
    schedule(go)
    go.cluster.heal()
    go.cluster.check_healed()
