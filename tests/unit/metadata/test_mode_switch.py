"""The controller's steps between ISR and Raft, one by one."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

import pytest

from lograft.metadata.alter_partition import alter_partition
from lograft.metadata.broker_partitions import handle_departure, handle_loss
from lograft.metadata.configs import incremental_alter_configs
from lograft.metadata.image import MetadataImage
from lograft.metadata.image_records import partition_record
from lograft.metadata.mode_switch import (
    Collection,
    LogEndPosition,
    check_modes,
    desired_mode,
    enter_raft,
    next_step,
    on_fenced,
    on_tail,
    report_leader,
    status,
)
from lograft.metadata.partitions import new_partition
from lograft.metadata.topics import create_topics
from lograft.metadata.types import REPLICATION_VERSION, PartitionState, TopicState
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import ReplicationMode
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition import AlterPartitionRequest
from lograft.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord

A = UUID(int=0xA)
ISR, ENTERING = ReplicationMode.ISR, ReplicationMode.ENTERING
RAFT, LEAVING = ReplicationMode.RAFT, ReplicationMode.LEAVING
Apply = Callable[[MetadataImage, Iterable[Message]], None]


@pytest.fixture
def image(cluster: Callable[..., MetadataImage], apply: Apply) -> MetadataImage:
    """One partition on three brokers; broker 4 exists, too."""
    image = cluster(1, 2, 3, 4)
    apply(image, [FeatureLevelRecord(name=REPLICATION_VERSION, feature_level=1)])
    apply(image, [TopicRecord(name="a", topic_id=A), new_partition(image, A, 0, (1, 2, 3))])
    return image


def topic(image: MetadataImage) -> TopicState:
    return image.topics[A]


def state(image: MetadataImage) -> PartitionState:
    return topic(image).partitions[0]


def desired(image: MetadataImage, value: str, name: str = "replication.mode") -> None:
    image.replay(ConfigRecord(resource_type=2, resource_name="a", name=name, value=value))


def put(image: MetadataImage, **changes: object) -> None:
    after = state(image)._replace(**changes)  # type: ignore[arg-type]
    image.replay(partition_record(topic(image), 0, after))


def test_single_partitions_may_differ_from_their_topic(image: MetadataImage) -> None:
    assert desired_mode(image, topic(image), 0) is ISR
    desired(image, "raft")
    assert desired_mode(image, topic(image), 0) is RAFT
    desired(image, "10:raft,0:isr", "replication.mode.partitions")
    assert desired_mode(image, topic(image), 0) is ISR
    assert desired_mode(image, topic(image), 1) is RAFT


def test_entering_begins_an_epoch_with_the_same_leader(image: MetadataImage) -> None:
    assert next_step(image, topic(image), 0) is None
    desired(image, "raft")
    record = next_step(image, topic(image), 0)
    assert record is not None
    assert (record.replication_mode, record.leader, record.leader_epoch) == (ENTERING, 1, 1)
    assert record.partition_epoch == 1
    image.replay(record)
    assert next_step(image, topic(image), 0) is None
    assert "flush their logs" in status(image, topic(image), 0).reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"leader": -1}, "the partition has no leader"),
        ({"isr": (1,)}, "1 replicas are in sync, but raft requires 2"),
        ({"leader_recovery": 1}, "unclean election"),
        ({"adding_replicas": (3,)}, "being reassigned"),
    ],
)
def test_entering_waits_and_says_for_what(
    image: MetadataImage, changes: dict[str, object], reason: str
) -> None:
    desired(image, "raft")
    put(image, **changes)
    assert next_step(image, topic(image), 0) is None
    assert reason in status(image, topic(image), 0).reason


def test_without_the_feature_nothing_is_switched_or_set(image: MetadataImage) -> None:
    image.replay(FeatureLevelRecord(name=REPLICATION_VERSION, feature_level=0))
    with pytest.raises(Rejected, match=REPLICATION_VERSION):
        check_modes(image, {"replication.mode.partitions": "3:raft"})
    check_modes(image, {"replication.mode": "isr"})
    desired(image, "raft")
    assert next_step(image, topic(image), 0) is None
    assert REPLICATION_VERSION in status(image, topic(image), 0).reason


def test_a_rollback_keeps_leader_and_epoch(image: MetadataImage) -> None:
    put(image, mode=ENTERING, leader_epoch=5)
    record = next_step(image, topic(image), 0)
    assert record is not None
    assert (record.replication_mode, record.leader, record.leader_epoch) == (ISR, 1, 5)


def enter(image: MetadataImage, **asked: object) -> PartitionRecord:
    now = state(image)
    question: dict[str, object] = {
        "leader": now.leader,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch,
        "isr": now.isr,
    }
    return enter_raft(image, topic(image), 0, **(question | asked))  # type: ignore[arg-type]


def test_raft_is_named_by_its_entering_epoch(image: MetadataImage) -> None:
    put(image, mode=ENTERING, leader_epoch=5, isr=(1, 2), elr=(3,))
    record = enter(image)
    assert (record.replication_mode, record.raft_life, record.leader_epoch) == (RAFT, 5, 5)
    assert record.eligible_leader_replicas is None


@pytest.mark.parametrize(
    ("changes", "asked", "code"),
    [
        ({"mode": ISR}, {}, ErrorCode.INVALID_REQUEST),
        ({}, {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({}, {"leader": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({}, {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({}, {"isr": (1, 2)}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": (1,)}, {}, ErrorCode.OPERATION_NOT_ATTEMPTED),
        ({"leader_recovery": 1}, {}, ErrorCode.OPERATION_NOT_ATTEMPTED),
    ],
)
def test_evidence_that_does_not_count(
    image: MetadataImage, changes: dict[str, object], asked: dict[str, object], code: ErrorCode
) -> None:
    put(image, **({"mode": ENTERING, "leader_epoch": 5, "partition_epoch": 1} | changes))
    with pytest.raises(Rejected) as refusal:
        enter(image, **asked)
    assert refusal.value.code == code


def report(image: MetadataImage, **fields: object) -> PartitionRecord | None:
    entries: dict[str, object] = {
        "leader": 2,
        "leader_epoch": 9,
        "life": 5,
        "in_sync": (2, 3),
        "voters": (1, 2, 3),
    }
    return report_leader(topic(image), 0, **(entries | fields))  # type: ignore[arg-type]


def test_an_elected_leader_may_be_many_epochs_ahead(image: MetadataImage) -> None:
    put(image, mode=RAFT, life=5, leader_epoch=5)
    record = report(image)
    assert record is not None
    assert (record.leader, record.leader_epoch, record.isr) == (2, 9, [2, 3])
    image.replay(record)
    assert report(image) is None
    for fields in ({"leader_epoch": 8}, {"life": 4}, {"leader": 3}, {"leader": 4}):
        with pytest.raises(Rejected):
            report(image, **fields)


def test_voters_complete_a_reassignment(image: MetadataImage) -> None:
    put(
        image,
        mode=RAFT,
        life=5,
        leader=2,
        leader_epoch=9,
        replicas=(2, 3, 4, 1),
        directories=tuple(UUID(int=5000 + broker) for broker in (2, 3, 4, 1)),
        adding_replicas=(4,),
        removing_replicas=(1,),
    )
    desired(image, "isr")
    assert next_step(image, topic(image), 0) is None
    assert "reassigned" in status(image, topic(image), 0).reason
    record = report(image, voters=(1, 2, 3, 4))
    assert record is not None
    assert record.adding_replicas == [4]
    record = report(image, voters=(4, 3, 2), in_sync=(2, 3, 4))
    assert record is not None
    assert (record.replicas, record.adding_replicas, record.removing_replicas) == (
        [2, 3, 4],
        [],
        [],
    )
    assert record.directories == [UUID(int=5000 + broker) for broker in (2, 3, 4)]
    image.replay(record)
    left = next_step(image, topic(image), 0)
    assert left is not None
    assert (left.replication_mode, left.leader, left.leader_epoch) == (LEAVING, -1, 10)


def answer(
    image: MetadataImage, collection: Collection, replica: int, epoch: int, end: int
) -> PartitionRecord | None:
    return on_tail(
        image,
        topic(image),
        0,
        collection,
        replica=replica,
        tail=LogEndPosition(epoch, end),
        min_isr=2,
    )


def test_the_best_log_of_a_majority_leads(image: MetadataImage) -> None:
    put(image, mode=LEAVING, life=5, leader=-1, leader_epoch=10)
    collection = Collection(10)
    assert answer(image, collection, 1, 5, 900) is None
    record = answer(image, collection, 3, 9, 100)
    assert record is not None
    assert (record.replication_mode, record.leader, record.leader_epoch) == (LEAVING, 3, 11)
    assert record.isr == [3]
    both = answer(image, Collection(10, {1: LogEndPosition(9, 100)}), 3, 9, 100)
    assert both is not None
    assert (both.replication_mode, both.leader, both.isr) == (ISR, 1, [1, 3])


def test_answers_to_another_epoch_or_of_the_fenced_do_not_count(image: MetadataImage) -> None:
    put(image, mode=LEAVING, life=5, leader=-1, leader_epoch=10)
    assert (
        answer(image, Collection(9, {1: LogEndPosition(9, 1), 2: LogEndPosition(9, 1)}), 3, 9, 1)
        is None
    )
    image.brokers[1] = replace(image.brokers[1], fenced=True)
    assert answer(image, Collection(10, {1: LogEndPosition(9, 100)}), 3, 9, 90) is None


def test_a_replica_in_a_higher_epoch_makes_the_last_one_grow(image: MetadataImage) -> None:
    put(image, mode=LEAVING, life=5, leader=-1, leader_epoch=10)
    record = on_fenced(topic(image), 0, Collection(10), epoch=14)
    assert record is not None
    assert (record.replication_mode, record.leader_epoch) == (LEAVING, 15)
    assert on_fenced(topic(image), 0, Collection(10), epoch=9) is None


def test_raft_partitions_are_left_alone_when_a_broker_goes(
    image: MetadataImage, config: BrokerConfig
) -> None:
    put(image, mode=RAFT, life=5, leader_epoch=5)
    assert list(handle_departure(image, 1, config)) == []
    assert list(handle_loss(image, 1, config)) == []
    put(image, mode=LEAVING, leader_epoch=11, isr=(1,))
    assert list(handle_departure(image, 2, config)) == []
    (again,) = handle_loss(image, 1, config)
    assert isinstance(again, PartitionRecord)
    assert (again.replication_mode, again.leader, again.leader_epoch) == (LEAVING, -1, 12)


def test_raft_partitions_take_only_reports(image: MetadataImage, config: BrokerConfig) -> None:
    put(image, mode=RAFT, life=5, leader_epoch=5)
    request = AlterPartitionRequest(broker_id=1, broker_epoch=image.brokers[1].epoch)
    assert alter_partition(image, request, 3, config=config).records == ()


def test_new_topics_take_the_broker_s_mode_along(
    image: MetadataImage,
    configured: Callable[..., BrokerConfig],
    new_id: Callable[[], UUID],
    apply: Apply,
) -> None:
    config = configured(default_replication_mode="raft")
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=3)
            for name in ("b", "__consumer_offsets")
        ]
    )
    apply(image, create_topics(image, request, config=config, new_id=new_id).records)
    assert image.config_of(2, "b") == {"replication.mode": "raft"}
    assert image.config_of(2, "__consumer_offsets") == {}


@pytest.mark.parametrize(("factor", "replicas"), [(4, {1, 2, 3, 4}), (2, {1, 2}), (3, None)])
def test_mode_and_number_of_replicas_change_in_one_step(
    image: MetadataImage, config: BrokerConfig, factor: int, replicas: set[int] | None, apply: Apply
) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name="a",
                configs=[AlterableConfig(name="replication.mode", value="raft")],
            )
        ],
        replication_factor=factor,
    )
    outcome = incremental_alter_configs(image, request, config=config)
    assert outcome.reply.responses[0].error_code == 0
    changes = [record for record in outcome.records if isinstance(record, PartitionChangeRecord)]
    assert bool(changes) == (replicas is not None)
    apply(image, outcome.records)
    assert image.config_of(2, "a")["replication.mode"] == "raft"
    if replicas is not None:
        now = state(image)
        assert set(now.replicas) - set(now.removing_replicas) == replicas
    request.replication_factor = 5
    outcome = incremental_alter_configs(image, request, config=config)
    assert outcome.records == ()
    assert outcome.reply.responses[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
