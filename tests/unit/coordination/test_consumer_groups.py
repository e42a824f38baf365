"""Any number of consumers that join, leave, stall and lose responses: no partition has two owners,
and in the end every member has its target assignment."""

from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lograft.coordination.consumer_member import MemberState, iterate_partitions
from lograft.coordination.subscriptions import REFRESH_INTERVAL_MS_MIN
from lograft.model.errors import ErrorCode
from lograft.model.settings.broker_table import CONSUMER_ASSIGNORS
from lograft.wire.records.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from tests.unit.coordination.consumer_client import Consumer, Shard

TOPICS = ["t0", "t1", "t2"]
REGEXES = ["t.*", "t[12]"]


class Life(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from(["0", "1000"]), name=st.sampled_from(["uniform", "range"]))
    def begin(self, interval: str, name: str) -> None:
        self.shard = Shard(
            {
                "group.consumer.assignment.interval.ms": interval,
                "group.consumer.assignors": name,
            }
        )
        self.shard.create_topic("t0", 3)
        self.consumers: list[Consumer] = []
        self.born = 0

    def newcomer(self, instance: str | None = None) -> Consumer:
        self.born += 1
        consumer = Consumer(self.shard, f"m{self.born}")
        consumer.instance_id = instance
        self.consumers.append(consumer)
        return consumer

    def pick(self, data: st.DataObject) -> Consumer:
        return data.draw(st.sampled_from(self.consumers))

    def beat(self, consumer: Consumer, **fields: object) -> None:
        answer = consumer.beat(**fields)  # type: ignore[arg-type]
        if answer.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            # A fenced member has lost its partitions and joins again.
            consumer.join(consumer.topics, subscribed_topic_regex=consumer.regex)

    @rule(
        topics=st.lists(st.sampled_from(TOPICS), unique=True),
        regex=st.sampled_from([None, *REGEXES]),
    )
    @precondition(lambda self: len(self.consumers) < 6)
    def join(self, topics: list[str], regex: str | None) -> None:
        self.newcomer().join(topics, subscribed_topic_regex=regex)

    @rule(instance=st.sampled_from(["i1", "i2"]))
    @precondition(lambda self: len(self.consumers) < 6)
    def join_static(self, instance: str) -> None:
        if all(consumer.instance_id != instance for consumer in self.consumers):
            self.newcomer(instance).join(["t0", "t1"])

    @rule(data=st.data(), lost=st.booleans())
    @precondition(lambda self: self.consumers)
    def heartbeat(self, data: st.DataObject, lost: bool) -> None:
        consumer = self.pick(data)
        if consumer.epoch > 0:
            self.beat(consumer, lost=lost)

    @rule(data=st.data())
    @precondition(lambda self: self.consumers)
    def reconcile(self, data: st.DataObject) -> None:
        self.pick(data).reconcile()

    @rule(data=st.data(), topics=st.lists(st.sampled_from(TOPICS), unique=True))
    @precondition(lambda self: self.consumers)
    def resubscribe(self, data: st.DataObject, topics: list[str]) -> None:
        consumer = self.pick(data)
        if consumer.epoch > 0:
            consumer.topics = topics
            self.beat(consumer, subscribed_topic_names=topics)

    @rule(data=st.data())
    @precondition(lambda self: self.consumers)
    def leave(self, data: st.DataObject) -> None:
        consumer = self.pick(data)
        self.consumers.remove(consumer)
        consumer.leave()

    @rule(data=st.data())
    @precondition(lambda self: any(each.instance_id and each.epoch > 0 for each in self.consumers))
    def restart_static(self, data: st.DataObject) -> None:
        static = [each for each in self.consumers if each.instance_id and each.epoch > 0]
        consumer = data.draw(st.sampled_from(static))
        self.consumers.remove(consumer)
        consumer.leave(-2)
        self.newcomer(consumer.instance_id).join(consumer.topics)

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 6))
    def topic_grows(self, topic: str, partitions: int) -> None:
        self.shard.create_topic(topic, partitions)

    @rule(topic=st.sampled_from(TOPICS))
    def topic_goes(self, topic: str) -> None:
        if topic in self.shard.image.topic_ids:
            self.shard.delete_topic(topic)

    @rule(ms=st.sampled_from([500, 5_000, 46_000]))
    def time_passes(self, ms: int) -> None:
        self.shard.pass_ms(ms)
        # A member without heartbeats for its whole session stops by itself (like clients).
        members = self.shard.consumers().members if "g" in self.shard.shard.groups else {}
        for consumer in self.consumers:
            if consumer.member_id not in members:
                consumer.has, consumer.assigned = {}, {}

    @rule()
    def fail_over(self) -> None:
        self.shard.fail_over()

    @rule()
    def append_fails(self) -> None:
        self.shard.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        if not hasattr(self, "shard"):
            return
        held: dict[tuple[UUID, int], str] = {}
        for consumer in self.consumers:
            for topic_id, partitions in consumer.has.items():
                for partition in partitions:
                    assert (topic_id, partition) not in held, "two consumers use it"
                    held[topic_id, partition] = consumer.member_id
        if "g" not in self.shard.shard.groups:
            return
        owners: dict[tuple[UUID, int], str] = {}
        group = self.shard.consumers()
        for member in group.members.values():
            for each in iterate_partitions(member.assigned, member.revoking):
                assert each not in owners, "two members own it (G2)"
                owners[each] = member.member_id
        known = {(t, p): m for t, found in group.owners.items() for p, m in found.items()}
        assert known == owners

    def teardown(self) -> None:
        """With heartbeats only, the group becomes stable (G4)."""
        if not hasattr(self, "shard"):
            return
        self.shard.failure = None
        # Long enough for the session of a member whose LeaveGroup was lost.
        for _ in range(20):
            self.shard.pass_ms(4_000)
            for consumer in self.consumers:
                if consumer.epoch > 0:
                    self.beat(consumer)
                else:
                    consumer.join(consumer.topics, subscribed_topic_regex=consumer.regex)
                consumer.reconcile()
        if not self.consumers:
            return
        group = self.shard.consumers()
        assert group.state_name == "Stable"
        assert group.members.keys() >= {each.member_id for each in self.consumers}
        for member in group.members.values():
            assert member.state is MemberState.STABLE
            assert {t: tuple(sorted(p)) for t, p in member.assigned.items()} == group.target(
                member.member_id
            )


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("count", [500])
def test_many_members_settle_quickly(count: int) -> None:
    """Two rounds of heartbeats after the last one has joined; the clock is virtual, the work is
    not."""
    shard = Shard()
    shard.create_topic("t", 1_000)
    consumers = [Consumer(shard, f"m{n:04}") for n in range(count)]
    for consumer in consumers:
        consumer.join(["t"])
    for _ in range(3):
        shard.pass_ms(1_000)
        for consumer in consumers:
            consumer.beat()
            consumer.reconcile()
            consumer.beat()
    assert shard.consumers().state_name == "Stable"
    assert {sum(map(len, each.has.values())) for each in consumers} == {1_000 // count}


@pytest.mark.parametrize("given", CONSUMER_ASSIGNORS)
def test_an_assignor_as_settings_call_it(given: str) -> None:
    """Kafka's settings may contain the name of its class."""
    shard = Shard({"group.consumer.assignors": given})
    topic_id = shard.create_topic("t", 3)
    answer = Consumer(shard, "m").join(["t"], server_assignor=CONSUMER_ASSIGNORS[given])
    assert answer.assignment is not None
    assert [
        (partition.topic_id, partition.partitions)
        for partition in answer.assignment.topic_partitions
    ] == [(topic_id, [0, 1, 2])]


def test_a_new_pattern_is_matched_alone() -> None:
    """If many members had a different pattern each, every heartbeat would match and write all of
    them."""
    shard = Shard()
    shard.create_topic("t0", 1)

    def matched_when_joins(number: int) -> list[str]:
        Consumer(shard, f"m{number}").join(None, subscribed_topic_regex=f"t0|n{number}")
        return [
            record.key.regular_expression
            for record in shard.written
            if isinstance(record.key, ConsumerGroupRegularExpressionKey)
        ]

    assert [matched_when_joins(number) for number in range(3)] == [["t0|n0"], ["t0|n1"], ["t0|n2"]]
    shard.create_topic("t1", 1)
    shard.pass_ms(REFRESH_INTERVAL_MS_MIN + 1)
    assert matched_when_joins(3) == ["t0|n0", "t0|n1", "t0|n2", "t0|n3"]
