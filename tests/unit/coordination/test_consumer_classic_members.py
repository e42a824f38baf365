"""Consumers of both protocols in one group that join, leave, restart with the other protocol and
stall: no partition has two owners, and in the end all partitions are assigned."""

from collections.abc import Callable
from random import Random

import pytest

from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.classic_subscription import subscription_of
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.model.errors import ErrorCode
from lograft.wire.message import Message
from lograft.wire.messages.heartbeat import HeartbeatResponse
from lograft.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from lograft.wire.messages.sync_group import SyncGroupResponse
from tests.unit.coordination.classic_client import ClassicConsumer, Named
from tests.unit.coordination.consumer_client import Consumer, Shard

MEMBERS_MAX = 5


class Classic(ClassicConsumer):
    """It processes responses immediately, but the next step follows later: `turn` runs one step."""

    def __init__(self, shard: Shard, name: str) -> None:
        super().__init__(shard, name)
        self.next = "join"
        self.leads: list[JoinGroupResponseMember] = []

    def turn(self) -> None:
        match self.next:
            case "join":
                self.next = "wait"
                self.join()
            case "sync":
                self.next = "wait"
                self.sync(self.assign() if self.leads else None)
            case "beat":
                self.beat()
            case _:
                assert self.next == "wait", self.next

    def hear(self, answer: Message) -> None:
        if isinstance(answer, JoinGroupResponse):
            self.joined(answer)
            is_leader = bool(answer.leader) and answer.leader == self.member_id
            self.leads = list(answer.members) if is_leader else []
            self._go_on(answer.error_code, "sync")
        elif isinstance(answer, SyncGroupResponse):
            before = self.has
            self.synced(answer)
            # A cooperative member that had to revoke a partition rejoins immediately.
            gave_up = any(
                each not in self.has.get(topic, []) for topic, all in before.items() for each in all
            )
            self._go_on(answer.error_code, "join" if gave_up and not answer.error_code else "beat")
        elif isinstance(answer, HeartbeatResponse):
            self._go_on(answer.error_code, "beat")

    def _go_on(self, code: int, then: str) -> None:
        match code:
            case ErrorCode.NONE:
                self.next = then
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.MEMBER_ID_REQUIRED:
                self.next = "join"
            case _:
                # It is removed: all of its partitions are lost.
                self.has, self.generation = {}, -1
                if code != ErrorCode.ILLEGAL_GENERATION:
                    self.member_id = ""
                self.next = "join"

    def assign(self) -> dict[str, Named]:
        """Round robin. A cooperative leader assigns no partition that another member still owns."""
        subscriptions = {
            request.member_id: subscription_of(bytes(request.metadata)) for request in self.leads
        }
        owner = {
            (topic.topic, partition): member_id
            for member_id, each in subscriptions.items()
            if each is not None
            for topic in each.owned_partitions
            for partition in topic.partitions
        }
        given: dict[str, Named] = {member_id: {} for member_id in subscriptions}
        members = sorted(subscriptions)
        turn = 0
        for name in sorted(self.shard.image.topic_ids):
            wanting = [
                member for member in members if name in getattr(subscriptions[member], "topics", ())
            ]
            topic_id = self.shard.image.topic_ids[name]
            for partition in range(len(self.shard.image.topics[topic_id].partitions)):
                if wanting:
                    turn += 1
                    member_id = wanting[turn % len(wanting)]
                    if owner.get((name, partition), member_id) == member_id:
                        given[member_id].setdefault(name, []).append(partition)
        return given


class MixedLife:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.shard = Shard(
            {
                "group.consumer.assignment.interval.ms": self.chance.choice(["0", "1000"]),
                "group.consumer.migration.policy": self.chance.choice(["bidirectional", "upgrade"]),
                "group.initial.rebalance.delay.ms": "100",
            }
        )
        self.shard.create_topic("t0", 4)
        self.is_cooperative = self.chance.choice([True, False])
        self.consumers: list[Consumer] = []
        self.classics: list[Classic] = []
        self.born = 0

    # The state of the test.

    def deliver(self) -> None:
        """Responses reach those classic members that are still running."""
        by_name = {classic.name: classic for classic in self.classics}
        for who, answer in self.shard.replies:
            if who in by_name:
                by_name[who].hear(answer)

    def members(self) -> set[str]:
        group = self.shard.shard.groups.get("g")
        return set(group.members) if isinstance(group, ClassicGroup | ConsumerGroup) else set()

    def beat(self, consumer: Consumer) -> None:
        if consumer.epoch > 0:
            answer = consumer.beat()
            self.deliver()
            if answer.error_code <= 0:
                return
        consumer.join(["t0", "t1"])
        self.deliver()

    def turn(self, classic: Classic) -> None:
        classic.turn()
        self.deliver()

    def come(self, instance: str | None = None) -> None:
        if len(self.consumers) + len(self.classics) >= MEMBERS_MAX:
            return
        self.born += 1
        if self.chance.choice([True, False]):
            consumer = Consumer(self.shard, f"m{self.born}")
            consumer.instance_id = instance
            self.consumers.append(consumer)
            self.beat(consumer)
        else:
            classic = Classic(self.shard, f"c{self.born}")
            classic.topics, classic.instance_id = ["t0", "t1"], instance
            classic.is_cooperative = self.is_cooperative
            self.classics.append(classic)
            self.turn(classic)

    # Events.

    def consumer_beats(self) -> None:
        if self.consumers:
            consumer = self.chance.choice(self.consumers)
            self.beat(consumer)
            if self.chance.choice([True, False]):
                consumer.reconcile()

    def classic_lives(self) -> None:
        if self.classics:
            classic = self.chance.choice(self.classics)
            for _ in range(self.chance.randint(1, 3)):
                self.turn(classic)

    def consumer_leaves(self) -> None:
        if self.consumers:
            consumer = self.chance.choice(self.consumers)
            self.consumers.remove(consumer)
            consumer.leave()
            self.deliver()

    def classic_leaves(self) -> None:
        if self.classics:
            classic = self.chance.choice(self.classics)
            self.classics.remove(classic)
            classic.leave()
            self.deliver()

    def static_member_restarts(self) -> None:
        """Possibly with the other protocol. (Classic members do not leave.)"""
        instance = self.chance.choice(["i1", "i2"])
        for consumer in [each for each in self.consumers if each.instance_id == instance]:
            self.consumers.remove(consumer)
            consumer.leave(-2)
            self.deliver()
        self.classics = [classic for classic in self.classics if classic.instance_id != instance]
        self.come(instance)

    def topic_grows(self) -> None:
        self.shard.create_topic(self.chance.choice(["t0", "t1"]), self.chance.randint(1, 6))
        self.deliver()

    def time_passes(self) -> None:
        self.shard.pass_ms(self.chance.choice([200, 5_000, 11_000, 31_000, 46_000]))
        self.deliver()
        # A member without heartbeats for too long has stopped by itself (like clients).
        members = self.members()
        for consumer in self.consumers:
            if consumer.member_id not in members:
                consumer.has, consumer.assigned = {}, {}
        for classic in self.classics:
            if classic.member_id not in members:
                classic.has = {}

    def fail_over(self) -> None:
        self.shard.fail_over()
        for classic in self.classics:
            if classic.next == "wait":
                classic.next = "join"

    def append_fails(self) -> None:
        self.shard.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE

    # Invariants.

    def check_owners(self) -> None:
        """No partition has two owners (G2)."""
        held: dict[tuple[str, int], str] = {}
        topics = self.shard.image.topics
        having: list[tuple[str, Named]] = [(classic.name, classic.has) for classic in self.classics]
        having += [
            (
                consumer.member_id,
                {topics[topic_id].name: found for topic_id, found in consumer.has.items()},
            )
            for consumer in self.consumers
        ]
        for name, has in having:
            for topic, partitions in has.items():
                for partition in partitions:
                    other = held.setdefault((topic, partition), name)
                    assert other == name, f"{topic}-{partition} is used by {other} and {name}"

    def settle(self) -> None:
        """Without further events, all partitions are assigned (G4)."""
        self.shard.failure = None
        for _ in range(40):
            self.shard.pass_ms(3_000)
            self.deliver()
            parked = self.parked()
            for classic in self.classics:
                if classic.next == "wait" and classic.name not in parked:
                    classic.next = "join"  # its response was lost with an append
                self.turn(classic)
            for consumer in self.consumers:
                self.beat(consumer)
                consumer.reconcile()
            self.check_owners()
        held = sum(len(found) for each in self.classics for found in each.has.values())
        held += sum(len(found) for each in self.consumers for found in each.has.values())
        topics = self.shard.image.topics.values()
        is_anybody_here = self.classics or self.consumers
        assert held == (sum(len(topic.partitions) for topic in topics) if is_anybody_here else 0)

    def parked(self) -> set[str]:
        group = self.shard.shard.groups.get("g")
        if not isinstance(group, ClassicGroup):
            return set()
        waiting = {*group.joins, *group.syncs}
        return {classic.name for classic in self.classics if classic.member_id in waiting}


@pytest.mark.parametrize("seed", range(100))
def test_random_lives(seed: int) -> None:
    life = MixedLife(seed)
    often: list[Callable[[], None]] = [life.come, life.consumer_beats, life.classic_lives]
    happenings = [
        *often,
        *often,
        life.classic_lives,
        life.consumer_leaves,
        life.classic_leaves,
        life.static_member_restarts,
        life.topic_grows,
        life.time_passes,
        life.fail_over,
        life.append_fails,
    ]
    for _ in range(40):
        life.chance.choice(happenings)()
        life.check_owners()
    life.settle()
