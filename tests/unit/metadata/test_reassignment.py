"""Reassignments: started, changed, cancelled, listed."""

from collections.abc import Callable
from uuid import UUID

import pytest

from lograft.metadata.image import MetadataImage
from lograft.metadata.reassignment import alter_reassignments, list_reassignments, target_of
from lograft.model.errors import ErrorCode
from lograft.model.types import ReplicationMode
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from tests.unit.metadata.conftest import append, make_config
from tests.unit.metadata.test_elections import Case, brokers, written

Cluster = Callable[..., MetadataImage]
T = UUID(int=7)


def reassign(
    image: MetadataImage,
    replicas: str | None,
    *,
    topic: str = "t",
    index: int = 0,
    fixed: bool = False,
) -> int:
    target = None if replicas is None else brokers(replicas)
    partition = ReassignablePartition(partition_index=index, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])],
        allow_replication_factor_change=not fixed,
    )
    outcome = alter_reassignments(image, request, config=make_config())
    append(image, outcome.records)
    return outcome.reply.responses[0].partitions[0].error_code


def shown(image: MetadataImage) -> str:
    """The partition, with + and - for replicas that are added and removed."""
    state = image.topics[T].partitions[0]
    text = written(state)
    if state.adding_replicas:
        text += " +" + "".join(map(str, state.adding_replicas))
    if state.removing_replicas:
        text += " -" + "".join(map(str, state.removing_replicas))
    return text


@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        ("123/123 1", "124", "1243/123 1 +4 -3"),
        ("123/123 1", "456", "456123/123 1 +456 -123"),
        # No replica must be copied: complete immediately.
        ("123/123 1", "321", "321/123 1"),
        ("123/123 1", "12", "12/12 1"),
        ("123/123 3", "12", "12/12 1"),
        ("123/123 1", "123", "123/123 1"),
        # A remaining replica is not in sync yet.
        ("123/13 1", "12", "123/13 1 -3"),
        ("12/1 1", "2", "21/1 1 -1"),
    ],
)
def test_a_reassignment_begins(cluster: Cluster, before: str, target: str, after: str) -> None:
    image = cluster(1, 2, 3, 4, 5, 6)
    Case(image, before)
    assert reassign(image, target) == 0
    assert shown(image) == after
    state = image.topics[T].partitions[0]
    assert target_of(state) == tuple(brokers(target))
    assert state.directories == tuple(UUID(int=5000 + replica) for replica in state.replicas)


def test_a_reassignment_changes_its_mind(cluster: Cluster) -> None:
    image = cluster(1, 2, 3, 4, 5)
    Case(image, "123/123 1")
    assert reassign(image, "124") == 0
    assert reassign(image, "124") == 0
    assert shown(image) == "1243/123 1 +4 -3"
    assert reassign(image, "145") == 0
    assert shown(image) == "14523/123 1 +45 -23"
    # Back to the old replicas, explicitly: no work is left.
    assert reassign(image, "123") == 0
    assert shown(image) == "123/123 1"


@pytest.mark.parametrize(
    ("isr", "after"),
    [
        ([1, 2, 3], "123/123 1"),
        ([1, 2, 4], "123/12 1"),
    ],
)
def test_a_reassignment_is_cancelled(cluster: Cluster, isr: list[int], after: str) -> None:
    image = cluster(1, 2, 3, 4, 5)
    case = Case(image, "123/123 1")
    epoch = case.topic.partitions[0].leader_epoch
    reassign(image, "1245")
    append(image, [PartitionChangeRecord(topic_id=T, partition_id=0, isr=isr)])
    assert reassign(image, None) == 0
    assert shown(image) == after
    # Replicas were removed: their fetches are rejected from now on.
    assert case.topic.partitions[0].leader_epoch > epoch
    assert reassign(image, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("unclean", [False, True])
def test_no_way_back_to_replicas_that_lack_records(cluster: Cluster, unclean: bool) -> None:
    image = cluster(1, 2)
    settings = {"unclean.leader.election.enable": "true"} if unclean else {}
    Case(image, "21/2 2", settings=settings, adding_replicas=[2], removing_replicas=[1])
    code = reassign(image, None)
    if unclean:
        assert code == 0
        assert shown(image) == "1/1 1 recovering"
    else:
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert shown(image) == "21/2 2 +2 -1"


def test_a_way_back_to_an_eligible_replica(cluster: Cluster) -> None:
    image = cluster(1, 2)
    Case(
        image,
        "213/2/1 2",
        settings={"min.insync.replicas": "2"},
        adding_replicas=[2],
        removing_replicas=[1],
    )
    assert reassign(image, None) == 0
    assert shown(image) == "13/1 1"


def test_without_elr_no_replica_is_in_sync_that_is_none(cluster: Cluster) -> None:
    image = cluster(1, 2, elr=False)
    Case(image, "21/2 2", adding_replicas=[2], removing_replicas=[1])
    assert reassign(image, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("122", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("129", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("12", ErrorCode.INVALID_REPLICATION_FACTOR),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_assignments_that_cannot_be(cluster: Cluster, target: str | None, code: int) -> None:
    image = cluster(1, 2, 3, 4)
    Case(image, "123/123 1")
    assert reassign(image, target, fixed=True) == code
    assert shown(image) == "123/123 1"


def test_the_factor_is_that_of_the_end(cluster: Cluster) -> None:
    """There are four replicas, but the replication factor is three."""
    image = cluster(1, 2, 3, 4)
    Case(image, "123/123 1")
    assert reassign(image, "124", fixed=True) == 0
    assert reassign(image, "1234", fixed=True) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(image, "134", fixed=True) == 0


def test_partitions_that_are_not_there(cluster: Cluster) -> None:
    image = cluster(1)
    Case(image, "1/1 1")
    assert reassign(image, "1", topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(image, "1", index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_changes_its_mode_has_to_finish(cluster: Cluster) -> None:
    image = cluster(1, 2)
    Case(image, "1/1 1", replication_mode=ReplicationMode.ENTERING)
    assert reassign(image, "2") == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_in_raft_mode_the_voters_complete_it(cluster: Cluster) -> None:
    image = cluster(1, 2, 3, 4)
    Case(image, "123/123 1", replication_mode=ReplicationMode.RAFT)
    assert reassign(image, "12") == 0
    assert shown(image) == "123/123 1 -3"
    assert reassign(image, "124") == 0
    assert shown(image) == "1243/123 1 +4 -3"
    # A replica that may have become a voter must be removed as a voter.
    assert reassign(image, None) == 0
    assert shown(image) == "1234/123 1 -4"
    assert image.topics[T].partitions[0].leader_epoch == 5


def test_a_partition_named_twice(cluster: Cluster) -> None:
    image = cluster(1, 2, 3)
    Case(image, "1/1 1")
    ones = [
        ReassignablePartition(partition_index=0, replicas=[2]),
        ReassignablePartition(partition_index=0, replicas=[3]),
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=ones)]
    )
    outcome = alter_reassignments(image, request, config=make_config())
    codes = [answer.error_code for answer in outcome.reply.responses[0].partitions]
    assert codes == [0, ErrorCode.INVALID_REQUEST]
    assert len(outcome.records) == 1


def test_what_is_under_way_is_shown(cluster: Cluster) -> None:
    image = cluster(1, 2)
    Case(image, "1/1 1")

    def listed(topics: list[ListPartitionReassignmentsTopics] | None) -> list[tuple[str, str]]:
        answer = list_reassignments(image, ListPartitionReassignmentsRequest(topics=topics))
        return [
            (
                topic.name,
                f"{partition.replicas} +{partition.adding_replicas} -{partition.removing_replicas}",
            )
            for topic in answer.topics
            for partition in topic.partitions
        ]

    assert listed(None) == []
    reassign(image, "2")
    assert listed(None) == [("t", "[2, 1] +[2] -[1]")]
    mine = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])
    other = ListPartitionReassignmentsTopics(name="u", partition_indexes=[0])
    assert listed([mine, other]) == listed(None)
    assert listed([]) == []
