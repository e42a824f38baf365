"""Elections on request, and by the controller itself."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from lograft.metadata import elect_leaders as elections
from lograft.metadata.elect_leaders import (
    balance_leaders,
    elect_for_leaderless_partitions,
    elect_leaders,
)
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import ReplicationMode
from lograft.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.unit.metadata.conftest import append, make_config

Cluster = Callable[..., MetadataImage]
T = UUID(int=7)
CONFIG = make_config()
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def image(cluster: Cluster) -> MetadataImage:
    """Brokers 1 and 2 are online, 3 is not. Partition 0: the preferred leader. 1: 2 leads instead
    of 1. 2: 1 leads instead of 3, which is offline. 3: no leader. 4: no online replica. 5: raft."""
    image = cluster(1, 2, fenced=[3])
    append(
        image,
        [
            TopicRecord(name="t", topic_id=T),
            partition(0, [1, 2], leader=1),
            partition(1, [1, 2], leader=2),
            partition(2, [3, 1], leader=1, isr=[1]),
            partition(3, [3, 2], leader=-1, isr=[], eligible_leader_replicas=[3]),
            partition(4, [3], leader=-1, isr=[], eligible_leader_replicas=[3]),
            partition(5, [1, 2], leader=2, replication_mode=ReplicationMode.RAFT),
        ],
    )
    return image


def partition(index: int, replicas: list[int], **more: Any) -> PartitionRecord:
    values: dict[str, Any] = {"isr": replicas, "leader_epoch": 0, "partition_epoch": 0}
    return PartitionRecord(topic_id=T, partition_id=index, replicas=replicas, **(values | more))


def elect(
    image: MetadataImage, kind: int, *indexes: int, topic: str = "t", leader: int = -1
) -> dict[int, int]:
    """Error codes by partition; the records are applied."""
    asked = [TopicPartitions(topic=topic, partitions=list(indexes))] if indexes else None
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, leader=leader)
    outcome = elect_leaders(image, request, config=CONFIG)
    append(image, outcome.records)
    return {
        answer.partition_id: answer.error_code
        for result in outcome.reply.replica_election_results
        for answer in result.partition_result
    }


def leaders(image: MetadataImage) -> list[int]:
    return [state.leader for state in image.topics[T].partitions.values()]


def test_preferred_elections_by_name(image: MetadataImage) -> None:
    assert elect(image, PREFERRED, 0, 1, 2, 3, 5, 9) == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        1: 0,
        2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        5: ErrorCode.INVALID_REQUEST,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(image) == [1, 1, 1, -1, -1, 2]
    nowhere = elect(image, PREFERRED, 0, topic="nope")
    assert nowhere == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_certain_broker_is_elected_if_it_is_in_sync_and_alive(image: MetadataImage) -> None:
    assert elect(image, PREFERRED, 0, 1, 2, 3, 5, 9, leader=2) == {
        0: 0,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        2: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        5: ErrorCode.ELECTION_NOT_NEEDED,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(image) == [2, 2, 1, -1, -1, 2]
    assert image.topics[T].partitions[0].leader_epoch == 1
    # Offline; a replica of a raft partition whose leader can be asked to hand over to it.
    assert elect(image, PREFERRED, 2, leader=3) == {2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(image, PREFERRED, 5, leader=1) == {5: ErrorCode.INVALID_REQUEST}
    assert leaders(image) == [2, 2, 1, -1, -1, 2]


def test_a_broker_that_is_not_in_sync_is_not_elected_by_name(image: MetadataImage) -> None:
    append(image, [partition(6, [1, 2], leader=1, isr=[1])])
    assert elect(image, PREFERRED, 6, leader=2) == {6: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert leaders(image)[6] == 1


def test_a_certain_broker_needs_partitions_and_no_unclean_election(image: MetadataImage) -> None:
    for kind, indexes in ((PREFERRED, []), (UNCLEAN, [0])):
        with pytest.raises(Rejected) as refusal:
            elect(image, kind, *indexes, leader=2)
        assert refusal.value.code == ErrorCode.INVALID_REQUEST


def test_preferred_elections_for_all(image: MetadataImage) -> None:
    """Partitions that need no election are omitted; one in raft mode is included, so that its
    leader is notified."""
    answers = elect(image, PREFERRED)
    assert sorted(answers) == [1, 2, 3, 4, 5]
    assert answers[5] == ErrorCode.INVALID_REQUEST
    assert leaders(image) == [1, 1, 1, -1, -1, 2]


def test_unclean_elections_by_name(image: MetadataImage) -> None:
    assert elect(image, UNCLEAN, 0, 1, 3, 3, 4) == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        3: 0,
        4: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    state = image.topics[T].partitions[3]
    assert (state.leader, state.isr, state.elr, state.leader_recovery) == (2, (2,), (), 1)


def test_other_kinds_of_elections_are_refused(image: MetadataImage) -> None:
    with pytest.raises(Rejected) as refusal:
        elect(image, 2, 0)
    assert refusal.value.code == ErrorCode.INVALID_REQUEST


def test_leaders_go_home_by_themselves(
    image: MetadataImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(image, [partition(6, [1, 2], leader=2), partition(7, [2, 1], leader=1)])
    monkeypatch.setattr(elections, "ELECTIONS_MAX", 2)
    rounds = []
    for _ in range(3):
        outcome = balance_leaders(image, config=CONFIG)
        append(image, outcome.records)
        rounds.append((len(outcome.records), outcome.reply))
    assert rounds == [(2, True), (1, False), (0, False)]
    assert leaders(image) == [1, 1, 1, -1, -1, 2, 1, 2]


def test_unclean_elections_only_where_they_are_allowed(image: MetadataImage) -> None:
    assert elect_for_leaderless_partitions(image, config=CONFIG).records == ()
    append(
        image,
        [
            ConfigRecord(
                resource_type=2,
                resource_name="t",
                name="unclean.leader.election.enable",
                value="true",
            )
        ],
    )
    outcome = elect_for_leaderless_partitions(image, config=CONFIG)
    assert not outcome.reply
    append(image, outcome.records)
    assert leaders(image) == [1, 2, 1, 2, -1, 2]
