"""Designed schedules for `ModeCluster`, step by step."""

from lograft.model.types import NodeId, ReplicationMode
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from tests.unit.replication.mode_cluster import ISR, RAFT, ModeCluster, Node
from tests.unit.replication.mode_controller import TOPIC


class Guide:
    def __init__(self, cluster: ModeCluster) -> None:
        self.cluster = cluster
        self.controller = cluster.controller

    def node(self, number: int) -> Node:
        return self.cluster.nodes[NodeId(number)]

    def deliver(self, *names: str) -> None:
        """Delivers messages with this prefix, and their consequences; the others stay in flight."""
        for _ in range(20):
            found = [m for m in self.cluster.messages if m.name.startswith(names)]
            if not found:
                return
            for message in found:
                self.cluster.messages.remove(message)
                message.deliver()
                self.cluster.check()

    def learn(self, *numbers: int, count: int = 100) -> None:
        for number in numbers:
            self.cluster.learn(self.node(number), count)
            self.cluster.check()

    def persist(self, *numbers: int) -> None:
        for number in numbers:
            while self.node(number).persists:
                self.cluster.persist(self.node(number))
                self.cluster.check()

    def flush(self, *numbers: int) -> None:
        for number in numbers:
            self.cluster.flush(self.node(number))
            self.cluster.check()

    def produce(self, number: int) -> None:
        before = self.cluster.records
        self.cluster.produce(self.node(number))
        assert self.cluster.records == before + 1, f"{number} refuses"
        self.cluster.check()

    def fetch(self, number: int, leader: int, *, times: int = 1) -> None:
        """Sends a request and delivers the response."""
        for _ in range(times):
            self.cluster.now_ms += 25
            self.cluster.fetch(self.node(number))
            self.deliver(f"fetch {number}>{leader}")
            self.deliver(f"answer {leader}>{number}")

    def follow(self, leader: int, *numbers: int, times: int = 6) -> None:
        """Fetches and flushes until no work is left."""
        for _ in range(times):
            self.flush(leader, *numbers)
            for number in numbers:
                self.fetch(number, leader)

    def lead(self, number: int) -> None:
        """The controller moves the leadership in ISR mode."""
        self.controller.write(
            [PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=number)]
        )

    def enter(self, leader: int, *in_sync: int) -> None:
        """From isr to raft, with the controller and these replicas."""
        self.controller.set_mode(RAFT)
        self.controller.step()
        self.learn(leader, *in_sync)
        self.follow(leader, *in_sync)
        self.ask(leader)

    def ask(self, leader: int) -> None:
        self.cluster.ask_raft(self.node(leader))
        self.deliver(f"ask {leader}")

    def take_up(self, *numbers: int) -> None:
        self.learn(*numbers)
        self.persist(*numbers)
        self.learn(*numbers)

    def elect(self, number: int, *voters: int) -> None:
        """A candidate whose requests reach these voters, which have no contact with a leader
        either."""
        self.cluster.now_ms += 400
        for voter in voters:
            replica = self.node(voter).replica
            raft = None if replica is None else replica.raft
            if raft is not None and raft.core.fetcher is not None:
                raft.core.fetcher.has_contact = False
        self.cluster.stand(self.node(number))
        for _ in range(4):
            self.persist(number, *voters)
            for voter in voters:
                self.deliver(f"VoteRequest {number}>{voter}")
                self.persist(voter)
                self.deliver(f"VoteResponse {voter}>{number}")
                self.persist(number)
                self.deliver(f"BeginQuorumEpochRequest {number}>{voter}")
        self.cluster.check()

    def leads(self, number: int) -> bool:
        replica = self.node(number).replica
        return replica is not None and replica.leader is not None

    def leave(self) -> None:
        self.controller.set_mode(ISR)
        self.controller.step()

    def answer(self, *numbers: int) -> None:
        """The controller requests the log end offsets of these replicas."""
        for number in numbers:
            self.cluster.ask_tail(self.node(number))
            self.deliver(f"ask tail {number}")
            self.deliver(f"tail {number}")

    @property
    def mode(self) -> ReplicationMode:
        return self.controller.state.mode


def in_raft(cluster: ModeCluster) -> Guide:
    """All three are in raft mode, 1 leads, and all replicas are equal."""
    guide = Guide(cluster)
    guide.enter(1, 2, 3)
    assert guide.mode is RAFT
    guide.take_up(1, 2, 3)
    guide.follow(1, 2, 3)
    return guide
