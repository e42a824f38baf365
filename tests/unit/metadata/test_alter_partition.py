"""Requests of leaders to change the ISR, and their outcomes."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from lograft.metadata.alter_partition import alter_partition
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from lograft.wire.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.unit.metadata.conftest import append, make_config

Cluster = Callable[..., MetadataImage]
T = UUID(int=7)
CONFIG = make_config()


@pytest.fixture
def image(cluster: Cluster) -> MetadataImage:
    """Broker 1 leads, 1 and 2 are in sync, 4 has no replica, 5 is fenced."""
    image = cluster(1, 2, 3, 4, fenced=[5])
    append(
        image,
        [
            TopicRecord(name="t", topic_id=T),
            PartitionRecord(
                partition_id=0,
                topic_id=T,
                replicas=[1, 2, 3, 5],
                isr=[1, 2],
                leader=1,
                leader_epoch=5,
                partition_epoch=9,
            ),
        ],
    )
    return image


def propose(
    image: MetadataImage,
    isr: list[int],
    *,
    sender: int = 1,
    epochs: Mapping[int, int] | None = None,
    topic_id: UUID = T,
    version: int = 3,
    broker_epoch: int | None = None,
    **more: Any,
) -> ControllerResult[AlterPartitionResponse]:
    values: dict[str, Any] = {"partition_index": 0, "leader_epoch": 5, "partition_epoch": 9}
    proposal = AlterPartitionRequestPartitionData(**(values | more))
    if version < 3:
        proposal.new_isr = isr
    else:
        proposal.new_isr_with_epochs = [
            BrokerState(broker_id=b, broker_epoch=(epochs or {}).get(b, -1)) for b in isr
        ]
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=image.brokers[sender].epoch if broker_epoch is None else broker_epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[proposal])],
    )
    return alter_partition(image, request, version, config=CONFIG)


def only(outcome: ControllerResult[AlterPartitionResponse]) -> AlterPartitionResponsePartitionData:
    return outcome.reply.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3])
def test_the_isr_grows_and_shrinks(image: MetadataImage, version: int) -> None:
    epochs = {3: image.brokers[3].epoch}
    outcome = propose(image, [1, 2, 3], epochs=epochs, version=version)
    assert only(outcome) == AlterPartitionResponsePartitionData(
        partition_index=0, leader_id=1, leader_epoch=5, isr=[1, 2, 3], partition_epoch=10
    )
    append(image, outcome.records)
    assert image.topics[T].partitions[0].isr == (1, 2, 3)
    shrunk = propose(image, [1], version=version, partition_epoch=10)
    append(image, shrunk.records)
    assert image.topics[T].partitions[0].isr == (1,)
    assert image.topics[T].partitions[0].leader_epoch == 5


def test_what_is_so_already_is_granted_without_a_record(image: MetadataImage) -> None:
    outcome = propose(image, [1, 2])
    assert outcome.records == ()
    assert only(outcome).partition_epoch == 9
    assert only(outcome).isr == [1, 2]


@pytest.mark.parametrize(
    ("isr", "more", "code"),
    [
        ([1], {"topic_id": UUID(int=8)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1], {"partition_index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ([1], {"partition_epoch": 10}, ErrorCode.NOT_CONTROLLER),
        ([1], {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1], {"leader_epoch": 4, "partition_epoch": 8}, ErrorCode.FENCED_LEADER_EPOCH),
        ([2], {"sender": 2}, ErrorCode.INVALID_REQUEST),
        ([1], {"partition_epoch": 8}, ErrorCode.INVALID_UPDATE_VERSION),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([2], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2, 2], {}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1, 5], {}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 2, 3], {"epochs": {3: 999}}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 2, 3], {"epochs": {2: 0}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_proposals_that_are_refused(
    image: MetadataImage, isr: list[int], more: dict[str, Any], code: ErrorCode
) -> None:
    outcome = propose(image, isr, **more)
    assert outcome.records == ()
    assert only(outcome).error_code == code


def test_who_shuts_down_cannot_join(image: MetadataImage) -> None:
    change = BrokerRegistrationChangeRecord(
        broker_id=3, broker_epoch=image.brokers[3].epoch, in_controlled_shutdown=1
    )
    append(image, [change])
    assert only(propose(image, [1, 2, 3])).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_former_registration_is_not_heard(image: MetadataImage) -> None:
    with pytest.raises(Rejected) as refusal:
        propose(image, [1], broker_epoch=0)
    assert refusal.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_has_recovered_says_so(cluster: Cluster) -> None:
    image = cluster(1, 2)
    append(
        image,
        [
            TopicRecord(name="t", topic_id=T),
            PartitionRecord(
                partition_id=0,
                topic_id=T,
                replicas=[1, 2],
                isr=[1],
                leader=1,
                leader_epoch=5,
                partition_epoch=9,
                leader_recovery_state=1,
            ),
        ],
    )
    early = propose(image, [1, 2], leader_recovery_state=1)
    assert only(early).error_code == ErrorCode.INVALID_REQUEST
    outcome = propose(image, [1], leader_recovery_state=0)
    append(image, outcome.records)
    assert only(outcome).leader_recovery_state == 0
    assert image.topics[T].partitions[0].leader_recovery == 0
    assert image.topics[T].partitions[0].leader_epoch == 5


def test_the_end_of_a_reassignment_may_bring_a_new_leader(cluster: Cluster) -> None:
    image = cluster(1, 2, 3)
    append(
        image,
        [
            TopicRecord(name="t", topic_id=T),
            PartitionRecord(
                partition_id=0,
                topic_id=T,
                replicas=[3, 2, 1],
                isr=[1, 2],
                adding_replicas=[3],
                removing_replicas=[1],
                leader=1,
                leader_epoch=5,
                partition_epoch=9,
            ),
        ],
    )
    outcome = propose(image, [1, 2, 3])
    assert only(outcome).error_code == ErrorCode.NEW_LEADER_ELECTED
    append(image, outcome.records)
    state = image.topics[T].partitions[0]
    assert (state.replicas, state.isr, state.leader) == ((3, 2), (2, 3), 3)
    assert (state.leader_epoch, state.adding_replicas, state.removing_replicas) == (6, (), ())


def test_a_partition_named_twice_is_changed_once(image: MetadataImage) -> None:
    proposals = [
        AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=5,
            partition_epoch=9,
            new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=-1)],
        )
    ] * 2
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=image.brokers[1].epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=T, partitions=proposals)],
    )
    outcome = alter_partition(image, request, 3, config=CONFIG)
    assert len(outcome.records) == 1
    codes = [answer.error_code for answer in outcome.reply.topics[0].partitions]
    assert codes == [0, ErrorCode.INVALID_UPDATE_VERSION]
