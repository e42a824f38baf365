"""Members of a group that has lost the claim to its topic."""

from lograft.coordination.classic_member import Client
from lograft.coordination.group_listing import list_users
from lograft.model.errors import ErrorCode
from lograft.wire.messages.join_group import JoinGroupResponse
from lograft.wire.messages.list_groups import ListGroupsResponse
from lograft.wire.records.config_record import ConfigRecord
from tests.unit.api.groups_bench import join_request
from tests.unit.coordination.consumer_client import Consumer, Shard

CLIENT = Client(client_id="c", host="/h", api_version=3)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


def shard_with_topics() -> Shard:
    shard = Shard(SETTINGS)
    for topic in ("t", "free"):
        shard.create_topic(topic, 2)
    return shard


def claim(shard: Shard, group_id: str, topic: str = "t") -> None:
    shard.apply(
        *(
            ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)
            for name, value in (("subscription.mode", "ptp"), ("subscription.group", group_id))
        )
    )


def join_classic(shard: Shard, group_id: str, *topics: str) -> None:
    request = join_request(group=group_id, topics=topics)
    shard.ask("join", lambda at, ticket, now: at.classic.join(request, CLIENT, ticket, now))
    ((_, answer),) = shard.replies
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NONE


def users(shard: Shard, *topics: str, group_ids: tuple[str, ...] = ()) -> dict[str, list[str]]:
    shard.ask("list", lambda at, ticket, _: list_users(at, ticket, topics, group_ids))
    ((_, answer),) = shard.replies
    assert isinstance(answer, ListGroupsResponse)
    return {group.group_id: group.used_topics for group in answer.groups}


def empty(shard: Shard) -> dict[str, bool]:
    return {group_id: group.is_empty() for group_id, group in shard.shard.groups.items()}


def test_a_consumer_group_is_fenced_when_another_has_its_topic() -> None:
    shard = shard_with_topics()
    mine, other, free = (Consumer(shard, f"m-{name}", name) for name in ("mine", "other", "free"))
    for consumer, topic in ((mine, "t"), (other, "t"), (free, "free")):
        consumer.join([topic])
    claim(shard, "mine")
    assert empty(shard) == {"mine": False, "other": True, "free": False}
    assert other.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert mine.beat().error_code == ErrorCode.NONE
    assert free.beat().error_code == ErrorCode.NONE


def test_a_classic_group_is_fenced_also_before_its_first_assignment() -> None:
    shard = shard_with_topics()
    join_classic(shard, "mine", "t")
    join_classic(shard, "other", "free", "t")
    join_classic(shard, "free", "free")
    claim(shard, "mine")
    assert empty(shard) == {"mine": False, "other": True, "free": False}


def test_it_is_fenced_by_the_next_coordinator_and_after_a_failed_write() -> None:
    shard = shard_with_topics()
    other = Consumer(shard, "m", "other")
    other.join(["t"])
    shard.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    claim(shard, "mine")
    assert empty(shard) == {"other": False}
    shard.fail_over()
    assert empty(shard) == {"other": True}
    other.join(["t"])
    shard.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    claim(shard, "mine")
    shard.pass_ms(1_000)
    assert empty(shard) == {"other": True}


def test_patterns_pass_by_what_the_group_has_not_claimed() -> None:
    shard = shard_with_topics()
    other = Consumer(shard, "m", "other")
    other.join([], subscribed_topic_regex=".*")
    assert set(other.assigned) == set(shard.image.topics)
    claim(shard, "mine")
    assert other.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other.join([], subscribed_topic_regex=".*")
    assert set(other.assigned) == {shard.image.topic_ids["free"]}
    mine = Consumer(shard, "m", "mine")
    mine.join([], subscribed_topic_regex=".*")
    assert set(mine.assigned) == set(shard.image.topics)


def test_who_uses_a_topic() -> None:
    shard = shard_with_topics()
    join_classic(shard, "classic", "t")
    Consumer(shard, "m", "consumer").join(["t", "free"])
    assert users(shard, "t") == {"classic": ["t"], "consumer": ["t"]}
    assert users(shard, "free", "t", group_ids=("consumer", "nobody")) == {
        "consumer": ["free", "t"]
    }
    assert users(shard, "other") == {}
