import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any
from uuid import UUID

import pytest

from lograft.metadata.image import MetadataImage
from lograft.metadata.topics import create_topics, delete_topics
from lograft.metadata.types import REPLICATION_VERSION, ControllerResult, VersionRange
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig, with_dynamic
from lograft.model.settings.resolution import describe_topic
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord

Cluster = Callable[..., MetadataImage]
NewId = Callable[[], UUID]
Apply = Callable[..., None]


def topic(name: str = "t", partitions: int = 1, factor: int = 1, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)


def assigned(name: str, *replicas: list[int], **more: Any) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=more.get("partitions", -1),
        replication_factor=more.get("factor", -1),
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ],
    )


def create(
    image: MetadataImage, config: BrokerConfig, new_id: NewId, *topics: CreatableTopic, **more: Any
) -> ControllerResult[CreateTopicsResponse]:
    request = CreateTopicsRequest(topics=list(topics), **more)
    return create_topics(image, request, config=config, new_id=new_id)


def test_a_topic_is_made_of_its_records_in_kafkas_order(
    cluster: Cluster, config: BrokerConfig, new_id: NewId, apply: Apply
) -> None:
    image = cluster(1)
    settings = [CreatableTopicConfig(name="retention.ms", value="1000")]
    outcome = create(image, config, new_id, topic("orders", 2, configs=settings))
    assert [type(record) for record in outcome.records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    assert outcome.records[2] == PartitionRecord(
        partition_id=0,
        topic_id=UUID(int=1000),
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[UUID(int=5001)],
    )
    (result,) = outcome.reply.topics
    assert (result.error_code, result.topic_id) == (0, UUID(int=1000))
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert result.configs is not None
    shown = {each.name: (each.value, each.config_source) for each in result.configs}
    assert shown["retention.ms"] == ("1000", 1)
    assert shown["cleanup.policy"] == ("delete", 5)
    assert image.topics == {}  # a decision does not modify the image

    apply(image, outcome.records)
    assert image.topic("orders") is not None
    assert image.config_of(2, "orders") == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"retention.ms": "1000"},
        {"unclean.leader.election.enable": "true", "cleanup.policy": "compact, delete"},
        {"internal.segment.bytes": "1048576", "segment.bytes": "2097152"},
    ],
)
def test_all_settings_of_a_new_topic_are_described_as_by_describe_configs(
    cluster: Cluster, config: BrokerConfig, new_id: NewId, overrides: dict[str, str]
) -> None:
    settings = [CreatableTopicConfig(name=name, value=text) for name, text in overrides.items()]
    topics = [topic("plain"), topic("t", configs=settings), topic("same", configs=settings)]
    changed = with_dynamic(config, default={"log.retention.ms": "777"}, broker={})
    for on_config in (config, changed):
        result = create(cluster(1), on_config, new_id, *topics).reply.topics
        for described, expected in zip(result, ({}, overrides, overrides), strict=True):
            assert [
                (each.name, each.value, each.config_source, each.read_only, each.is_sensitive)
                for each in described.configs or ()
            ] == [
                (each.name, each.value, each.source, each.read_only, each.is_sensitive)
                for each in describe_topic(expected, on_config)
            ]


def test_creating_a_topic_does_not_describe_every_setting_anew(
    cluster: Cluster, config: BrokerConfig, new_id: NewId
) -> None:
    image, called = cluster(1), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal called
        called += event == "call"

    create(image, config, new_id, topic("first"))
    sys.setprofile(count)
    try:
        create(image, config, new_id, topic("second"))
    finally:
        sys.setprofile(None)
    # 64; the settings of a topic are 41.
    assert called < 100


def test_defaults_come_from_the_settings(
    cluster: Cluster, configured: Callable[..., BrokerConfig], new_id: NewId
) -> None:
    config = configured(num_partitions="4", default_replication_factor="2")
    outcome = create(cluster(1, 2, 3), config, new_id, topic("t", -1, -1))
    (result,) = outcome.reply.topics
    assert (result.num_partitions, result.replication_factor) == (4, 2)


BAD_TOPICS = [
    (topic("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    (topic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
    (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
    (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
    (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
    (
        topic("t", configs=[CreatableTopicConfig(name="nope", value="1")]),
        ErrorCode.INVALID_CONFIG,
    ),
    (
        topic("t", configs=[CreatableTopicConfig(name="retention.ms", value="x")]),
        ErrorCode.INVALID_CONFIG,
    ),
    (
        topic("t", configs=[CreatableTopicConfig(name="retention.ms", value=None)]),
        ErrorCode.INVALID_CONFIG,
    ),
    (assigned("t", [1], partitions=1), ErrorCode.INVALID_REQUEST),
    (assigned("t", [1], factor=1), ErrorCode.INVALID_REQUEST),
    (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned("t", [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned("t", [1], [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned("t", [3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (
        CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
        ),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    (
        CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2,
        ),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
]


@pytest.mark.parametrize(
    ("wanted", "code"),
    BAD_TOPICS,
    ids=[f"{n}-{code.name}" for n, (_, code) in enumerate(BAD_TOPICS)],
)
def test_what_cannot_be_is_refused_and_the_others_are_made(
    cluster: Cluster,
    config: BrokerConfig,
    new_id: NewId,
    apply: Apply,
    wanted: CreatableTopic,
    code: ErrorCode,
) -> None:
    image = cluster(1, 2, fenced=[3])
    apply(image, create(image, config, new_id, topic("a.b")).records)
    outcome = create(image, config, new_id, wanted, topic("good"))
    bad, good = outcome.reply.topics
    assert (bad.error_code, good.error_code) == (code, ErrorCode.NONE)
    assert bad.error_message
    assert [r.name for r in outcome.records if isinstance(r, TopicRecord)] == ["good"]


def test_replicas_assigned_by_hand_are_kept(
    cluster: Cluster, config: BrokerConfig, new_id: NewId
) -> None:
    image = cluster(1, 2, fenced=[3])
    outcome = create(image, config, new_id, assigned("t", [2, 1], [3, 1]))
    first, second = outcome.records[1:]
    assert isinstance(first, PartitionRecord)
    assert isinstance(second, PartitionRecord)
    assert (first.replicas, first.isr, first.leader) == ([2, 1], [2, 1], 2)
    assert (second.replicas, second.isr, second.leader) == ([3, 1], [1], 1)


def test_validate_only_makes_nothing(cluster: Cluster, config: BrokerConfig, new_id: NewId) -> None:
    outcome = create(cluster(1), config, new_id, topic("t", 3), validate_only=True)
    (result,) = outcome.reply.topics
    assert outcome.records == ()
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert result.topic_id == ZERO_UUID


def test_a_name_given_twice_is_refused_once(
    cluster: Cluster, config: BrokerConfig, new_id: NewId
) -> None:
    outcome = create(cluster(1), config, new_id, topic("t"), topic("u"), topic("t"))
    assert [(r.name, r.error_code) for r in outcome.reply.topics] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]


def test_one_request_has_a_limit(cluster: Cluster, config: BrokerConfig, new_id: NewId) -> None:
    with pytest.raises(Rejected, match="at most 10000 partitions") as refusal:
        create(cluster(1), config, new_id, topic("t", 9_000), topic("u", 1_001))
    assert refusal.value.code == ErrorCode.POLICY_VIOLATION


def test_ids_that_mean_something_are_not_given(cluster: Cluster, config: BrokerConfig) -> None:
    dash = UUID(bytes=b"\xf8" + b"\0" * 15)  # "-AAA…"
    ids = iter([ZERO_UUID, UUID(int=1), dash, UUID(int=77)])
    outcome = create(cluster(1), config, lambda: next(ids), topic("t"))
    assert outcome.reply.topics[0].topic_id == UUID(int=77)


def test_topics_go_by_name_or_by_id(
    cluster: Cluster, config: BrokerConfig, new_id: NewId, apply: Apply
) -> None:
    image = cluster(1)
    apply(image, create(image, config, new_id, topic("a"), topic("b"), topic("c")).records)
    ids = image.topic_ids.copy()
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="a"),
            DeleteTopicState(topic_id=ids["b"]),
            DeleteTopicState(name="nope"),
            DeleteTopicState(topic_id=UUID(int=5)),
            DeleteTopicState(),
            DeleteTopicState(name="c", topic_id=ids["c"]),
        ]
    )
    outcome = delete_topics(image, request, config=config)
    assert [(r.name, r.error_code) for r in outcome.reply.responses] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    apply(image, outcome.records)
    assert list(image.topic_ids) == ["c"]
    twice = [DeleteTopicState(name="c"), DeleteTopicState(topic_id=ids["c"])]
    outcome = delete_topics(image, DeleteTopicsRequest(topics=twice), config=config)
    assert [r.error_code for r in outcome.reply.responses] == [0, ErrorCode.INVALID_REQUEST]
    outcome = delete_topics(image, DeleteTopicsRequest(topic_names=["c", "c"]), config=config)
    assert [r.error_code for r in outcome.reply.responses] == [ErrorCode.INVALID_REQUEST]
    assert outcome.records == ()
    outcome = delete_topics(image, DeleteTopicsRequest(topic_names=["c"]), config=config)
    apply(image, outcome.records)
    assert image.topic_ids == {}


def test_deletion_may_be_switched_off(
    cluster: Cluster, configured: Callable[..., BrokerConfig]
) -> None:
    config = configured(delete_topic_enable="false")
    with pytest.raises(Rejected) as refusal:
        delete_topics(cluster(1), DeleteTopicsRequest(topic_names=["a"]), config=config)
    assert refusal.value.code == ErrorCode.TOPIC_DELETION_DISABLED


@pytest.mark.parametrize("knows_raft", [True, False])
def test_the_first_topic_in_raft_mode_enables_it_if_all_nodes_can(
    cluster: Cluster, config: BrokerConfig, new_id: NewId, apply: Apply, knows_raft: bool
) -> None:
    image = cluster(1, 2, 3)
    for broker in list(image.brokers.values()):
        features = {REPLICATION_VERSION: VersionRange(0, 1)} if knows_raft else {}
        image.brokers[broker.broker_id] = replace(broker, features=features)
    raft = [CreatableTopicConfig(name="replication.mode", value="raft")]
    first = create(image, config, new_id, topic("first", 1, 3, configs=raft))
    if not knows_raft:
        assert first.reply.topics[0].error_code == ErrorCode.INVALID_CONFIG
        assert not first.records
        return
    assert first.records[-1] == FeatureLevelRecord(name=REPLICATION_VERSION, feature_level=1)
    apply(image, first.records)
    second = create(image, config, new_id, topic("second", 1, 3, configs=raft))
    assert not any(isinstance(record, FeatureLevelRecord) for record in second.records)
