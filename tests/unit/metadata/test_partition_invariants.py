"""Random events of the partitions of a small cluster, with all decisions about them: M4, M6 and D1
of the reliability notes as far as the controller is responsible.

The ghost state contains, for each partition, the replicas that have every committed record. Leaders
commit whenever enough replicas are in sync, without those outside the ISR; crashes destroy records.
No replica outside the ghost state may be in the ISR or eligible, unless the election was unclean.
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.metadata.alter_partition import alter_partition
from lograft.metadata.brokers import (
    fence_broker,
    heartbeat,
    register_broker,
    unregister_broker,
)
from lograft.metadata.configs import incremental_alter_configs
from lograft.metadata.elect_leaders import (
    balance_leaders,
    elect_for_leaderless_partitions,
    elect_leaders,
)
from lograft.metadata.elections import is_reassigning
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.reassignment import alter_reassignments
from lograft.metadata.topics import create_topics
from lograft.metadata.types import ELR_VERSION, ControllerResult, LeaderRecovery, PartitionState
from lograft.model.errors import Rejected
from lograft.model.types import Epoch, Offset, TopicIdPartition
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from lograft.wire.messages.broker_registration import BrokerRegistrationRequest
from lograft.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lograft.wire.messages.elect_leaders import ElectLeadersRequest
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lograft.wire.messages.unregister_broker import UnregisterBrokerRequest
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from tests.unit.metadata.conftest import make_config
from tests.unit.metadata.test_decision_invariants import through_the_log

R = TypeVar("R")
CONFIG = make_config()
BROKERS = (1, 2, 3, 4)


class Lives:
    def __init__(self, seed: int, *, unclean: bool) -> None:
        self.chance = Random(seed)
        self.unclean = unclean
        self.image = MetadataImage()
        self.observer = MetadataImage()
        #: Replicas that have every committed record of a partition.
        self.complete: dict[TopicIdPartition, set[int]] = {}
        #: Members of the ISR that is being proposed.
        self.joining: list[int] = []
        #: A broker whose records are lost, before the controller knows.
        self.crashed = -1
        #: The registrations that were shut down cleanly, by broker.
        self.stopped: dict[int, int] = {}
        self._append(
            (
                FeatureLevelRecord(name="metadata.version", feature_level=30),
                FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
            )
        )
        for broker_id in BROKERS:
            self.register(broker_id)
            self.beat(broker_id)
        topic = CreatableTopic(name="t", num_partitions=4, replication_factor=3)
        self.do(
            lambda image: create_topics(
                image,
                CreateTopicsRequest(topics=[topic]),
                config=CONFIG,
                new_id=lambda: UUID(bytes=self.chance.randbytes(16)),
            )
        )
        for key, state in self.partitions():
            self.complete[key] = set(state.isr)

    def partitions(self) -> list[tuple[TopicIdPartition, PartitionState]]:
        return [
            (TopicIdPartition(topic.topic_id, index), state)
            for topic in self.image.topics.values()
            for index, state in topic.partitions.items()
        ]

    def do(self, decision: Callable[[MetadataImage], ControllerResult[R]]) -> R | None:
        before = self.image.copy()
        try:
            outcome = decision(self.image)
        except Rejected:
            assert self.image == before
            return None
        assert self.image == before
        self._append(outcome.records)
        for key, state in self.partitions():
            old = before.partition(*key)
            if old is not None:
                self._check(key, old, state)
        return outcome.reply

    def _append(self, records: tuple[Message, ...]) -> None:
        end = Offset(self.image.offset + len(records))
        self.image.apply(records, offset=end, epoch=Epoch(1))
        self.observer.apply(through_the_log(records), offset=end, epoch=Epoch(1))
        assert self.observer == self.image

    def _check(self, key: TopicIdPartition, old: PartitionState, new: PartitionState) -> None:
        where = f"{old}\n{new}"
        assert set(new.isr) <= set(new.replicas), where
        assert set(new.elr) <= set(new.replicas), where
        assert not set(new.isr) & set(new.elr), where
        assert len(new.replicas) == len(set(new.replicas)) == len(new.directories), where
        assert set(new.adding_replicas) <= set(new.replicas), where
        assert set(new.removing_replicas) <= set(new.replicas), where
        assert not set(new.adding_replicas) & set(new.removing_replicas), where
        if new.leader >= 0:
            assert new.leader in new.isr, where
            assert self.image.brokers[new.leader].is_active, where
            assert not new.last_known_elr, where
        if old != new:
            assert new.partition_epoch == old.partition_epoch + 1, where
            removes = not set(old.replicas) <= set(new.replicas)
            assert (new.leader_epoch > old.leader_epoch) == (new.leader != old.leader or removes), (
                where
            )
        trusted = (*old.isr, *old.elr, *self.joining)
        if new.leader >= 0 and new.leader not in trusted and new.leader != old.leader:
            assert new.leader_recovery == LeaderRecovery.RECOVERING, where
            assert self.unclean or old.last_known_elr == (new.leader,), where
            assert self.unclean or {*old.isr, *old.elr} <= {self.crashed}, where
            self.complete[key] = {new.leader}
        self.complete[key] &= set(new.replicas)
        assert set(new.isr) <= self.complete[key], where
        assert set(new.elr) <= self.complete[key], where
        marks = (
            (self.image.leaderless, new.leader < 0),
            (self.image.not_preferred, new.leader >= 0 and new.leader != new.replicas[0]),
            (self.image.reassigning, is_reassigning(new)),
        )
        for keys, is_so in marks:
            assert (key in keys) == is_so, where
        held = [b for b, keys in self.image.held_by.items() if key in keys]
        assert sorted(held) == sorted(new.replicas), where

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def commit(self) -> None:
        """Leaders commit if they may."""
        rules = LeadershipRules(self.image, CONFIG).rules_of("t")
        for key, state in self.partitions():
            needed = min(rules.min_insync_replicas, len(state.replicas))
            if state.leader >= 0 and len(state.isr) >= needed:
                self.complete[key] = set(state.isr)

    def register(self, broker_id: int) -> None:
        before = self.image.brokers.get(broker_id)
        previous = self.stopped.get(broker_id, -1)
        if before is None or before.epoch != previous:
            self.crashed = broker_id
            for holders in self.complete.values():
                holders.discard(broker_id)
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=UUID(bytes=self.chance.randbytes(16)),
            log_dirs=[UUID(int=1000 + broker_id)],
            previous_broker_epoch=previous,
        )
        self.do(lambda image: register_broker(image, request, cluster_id="c", config=CONFIG))
        self.crashed = -1

    def unregister(self, broker_id: int) -> None:
        """Regardless of its records, it no longer counts."""
        request = UnregisterBrokerRequest(broker_id=broker_id)
        self.crashed = broker_id
        self.do(lambda image: unregister_broker(image, request, config=CONFIG))
        self.crashed = -1

    def beat(self, broker_id: int, *, stop: bool = False) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            current_metadata_offset=self.image.offset,
            want_shut_down=stop,
        )
        reply = self.do(lambda image: heartbeat(image, request, config=CONFIG))
        if reply is not None and reply.should_shut_down:
            self.stopped[broker_id] = broker.epoch

    def propose(self) -> None:
        """A leader proposes any combination of assigned online replicas."""
        key, state = self.chance.choice(self.partitions())
        leader = self.image.brokers.get(state.leader)
        if leader is None:
            return
        others = [replica for replica in state.replicas if replica != state.leader]
        isr = [state.leader, *self.chance.sample(others, self.chance.randrange(len(others) + 1))]
        alone = state.leader_recovery == LeaderRecovery.RECOVERING
        proposal = AlterPartitionRequestPartitionData(
            partition_index=key.partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=member, broker_epoch=self.epoch(member))
                for member in ([state.leader] if alone else isr)
            ],
        )
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=key.topic_id, partitions=[proposal])],
        )
        # A new member has caught up with the leader before it is proposed.
        caught_up = [b for b in isr if b in self.image.brokers and self.image.brokers[b].is_active]
        self.complete[key] |= set(caught_up)
        self.joining = caught_up
        self.do(lambda image: alter_partition(image, request, 3, config=CONFIG))
        self.joining = []

    def epoch(self, broker_id: int) -> int:
        broker = self.image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def reassign(self) -> None:
        key, _ = self.chance.choice(self.partitions())
        target = self.chance.sample(BROKERS, self.chance.randrange(1, 4))
        partition = ReassignablePartition(
            partition_index=key.partition, replicas=target if self.chance.random() < 0.8 else None
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[partition])]
        )
        self.do(lambda image: alter_reassignments(image, request, config=CONFIG))

    def configure(self) -> None:
        if self.unclean and self.chance.random() < 0.3:
            name, value = "unclean.leader.election.enable", self.chance.choice(["true", "false"])
        else:
            name, value = "min.insync.replicas", self.chance.choice("123")
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self.do(lambda image: incremental_alter_configs(image, request, config=CONFIG))

    def elect(self) -> None:
        kind = int(self.unclean and self.chance.random() < 0.3)
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        self.do(lambda image: elect_leaders(image, request, config=CONFIG))

    def step(self) -> None:
        broker_id = self.chance.choice(BROKERS)
        match self.chance.randrange(20):
            case 0 | 1:
                self.do(lambda image: fence_broker(image, broker_id, config=CONFIG))
            case 2:
                self.register(broker_id)
            case 3 | 4 | 5 | 6:
                self.beat(broker_id)
            case 7 | 8:
                self.beat(broker_id, stop=True)
            case 9:
                self.reassign()
            case 10:
                self.configure()
            case 11:
                self.elect()
            case 12:
                self.do(lambda image: balance_leaders(image, config=CONFIG))
                self.do(lambda image: elect_for_leaderless_partitions(image, config=CONFIG))
            case 13 if self.chance.random() < 0.2:
                self.unregister(broker_id)
            case _:
                self.propose()
        if self.chance.random() < 0.7:
            self.commit()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 150), st.booleans())
def test_nobody_is_trusted_who_lacks_a_record(seed: int, steps: int, unclean: bool) -> None:
    lives = Lives(seed, unclean=unclean)
    for _ in range(steps):
        lives.step()
    rebuilt = MetadataImage()
    rebuilt.apply(lives.image.records(), offset=lives.image.offset, epoch=lives.image.epoch)
    assert rebuilt == lives.image
