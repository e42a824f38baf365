"""Requests for the golden sweep, in any version, of the data and metadata APIs.

A builder returns one or more requests of its API for a version, without the fields that the version
does not have. APIs without a builder get an empty request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lograft.wire.batches import Record, RecordHeader, build_batch
from lograft.wire.compression import Codec
from lograft.wire.message import Message
from lograft.wire.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)

FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000
#: Resource types of the config APIs.
TOPIC, BROKER = 2, 4
FIRST_PRODUCE_WITH_ZSTD: Final = 7


@dataclass(frozen=True, slots=True)
class Subject:
    """The topic of the requests with two partitions, its id, and a group."""

    topic: str
    topic_id: UUID
    group: str = "golden-group"


def batch(codec: int, count: int = 3) -> bytes:
    records = [
        Record(
            number,
            FIRST_TIMESTAMP_MS + number,
            None if number == 1 else b"key%d" % number,
            b"value %d " % number * 8,
            (RecordHeader("h", b"1"), RecordHeader("null", None)),
        )
        for number in range(count)
    ]
    return build_batch(records, compression=codec)


def produce_requests(about: Subject, version: int) -> list[Message]:
    codecs = [codec for codec in Codec if codec != Codec.ZSTD or version >= FIRST_PRODUCE_WITH_ZSTD]
    good = [
        produce.ProduceRequest(
            acks=-1 if codec else 1,
            timeout_ms=5000,
            topic_data=[
                produce.TopicProduceData(
                    name=about.topic,
                    topic_id=about.topic_id,
                    partition_data=[
                        produce.PartitionProduceData(index=index, records=batch(codec))
                        for index in range(2)
                    ],
                )
            ],
        )
        for codec in codecs
    ]
    unknown = produce.TopicProduceData(
        name="no-such-topic",
        topic_id=UUID(int=7),
        partition_data=[produce.PartitionProduceData(index=0, records=batch(0))],
    )
    return [*good, produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[unknown])]


def fetch_requests(about: Subject, version: int) -> list[Message]:
    def ask(offset: int, *, isolation: int = 0, epoch: int = -1, partitions: int = 2) -> Message:
        return fetch.FetchRequest(
            max_wait_ms=10,
            min_bytes=1,
            max_bytes=8_000,
            isolation_level=isolation,
            session_epoch=epoch,
            topics=[
                fetch.FetchTopic(
                    topic=about.topic,
                    topic_id=about.topic_id,
                    partitions=[
                        fetch.FetchPartition(
                            partition=index, fetch_offset=offset, partition_max_bytes=3_000
                        )
                        for index in range(partitions)
                    ],
                )
            ],
        )

    with_session = [ask(0, epoch=0)] if version >= 7 else []
    return [ask(0, isolation=1), ask(1), ask(1_000_000), ask(0, partitions=3), *with_session]


def list_offsets_requests(about: Subject, version: int) -> list[Message]:
    moments = [-1, -2, FIRST_TIMESTAMP_MS + 1]
    moments += [-3] if version >= 7 else []
    moments += [-4] if version >= 8 else []
    return [
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=about.topic,
                    partitions=[
                        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=moment)
                        for index in range(2)
                    ],
                )
            ],
        )
        for moment in moments
    ]


def metadata_requests(about: Subject, version: int) -> list[Message]:
    named = [metadata.MetadataRequestTopic(name=name) for name in (about.topic, "no-such-topic")]
    everything = metadata.MetadataRequest(topics=None if version >= 1 else [])
    by_name = metadata.MetadataRequest(topics=named)
    if version >= 4:
        by_name.allow_auto_topic_creation = False
    by_id = [metadata.MetadataRequestTopic(name=None, topic_id=about.topic_id)]
    return [
        everything,
        by_name,
        *([metadata.MetadataRequest(topics=by_id)] if version >= 12 else []),
    ]


def create_topics_requests(about: Subject, version: int) -> list[Message]:
    configs = [create_topics.CreatableTopicConfig(name="retention.ms", value="60000")]
    assigned = [create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    topics = [
        create_topics.CreatableTopic(
            name=f"made-by-v{version}", num_partitions=2, replication_factor=1, configs=configs
        ),
        create_topics.CreatableTopic(
            name=f"assigned-by-v{version}",
            num_partitions=-1,
            replication_factor=-1,
            assignments=assigned,
        ),
        create_topics.CreatableTopic(name=about.topic, num_partitions=1, replication_factor=1),
    ]
    return [create_topics.CreateTopicsRequest(topics=topics, timeout_ms=5000)]


def delete_topics_requests(_about: Subject, version: int) -> list[Message]:
    names = [f"made-by-v{version}", "no-such-topic"]
    if version >= 6:
        states = [delete_topics.DeleteTopicState(name=name) for name in names]
        return [delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=5000)]
    return [delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=5000)]


def create_partitions_requests(about: Subject, version: int) -> list[Message]:
    topics = [
        create_partitions.CreatePartitionsTopic(
            name=f"assigned-by-v{version + 4}", count=3, assignments=None
        ),
        create_partitions.CreatePartitionsTopic(name=about.topic, count=1, assignments=None),
    ]
    return [create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=5000)]


def describe_configs_requests(about: Subject, _version: int) -> list[Message]:
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes"]
    resources = [
        describe_configs.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=about.topic, configuration_keys=keys
        ),
        describe_configs.DescribeConfigsResource(
            resource_type=BROKER, resource_name="1", configuration_keys=None
        ),
        describe_configs.DescribeConfigsResource(
            resource_type=TOPIC, resource_name="no-such-topic", configuration_keys=[]
        ),
    ]
    return [
        describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
        for resource in resources
        for synonyms in (False, True)
    ]


def alter_configs_requests(about: Subject, _version: int) -> list[Message]:
    return [
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=about.topic,
                    configs=[alter_configs.AlterableConfig(name="retention.ms", value=value)],
                )
            ]
        )
        for value in ("100000000", "a while")
    ]


def incremental_alter_configs_requests(about: Subject, _version: int) -> list[Message]:
    return [
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=about.topic,
                    configs=[
                        incremental_alter_configs.AlterableConfig(
                            name="retention.ms", config_operation=operation, value=value
                        )
                    ],
                )
            ]
        )
        for operation, value in ((0, "200000000"), (1, None), (0, "a while"))
    ]


def delete_records_requests(about: Subject, _version: int) -> list[Message]:
    return [
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name=about.topic,
                    partitions=[
                        delete_records.DeleteRecordsPartition(partition_index=1, offset=offset)
                    ],
                )
            ],
            timeout_ms=5000,
        )
        for offset in (1, 10_000_000)
    ]


def epoch_requests(about: Subject, _version: int) -> list[Message]:
    partitions = [
        offset_for_leader_epoch.OffsetForLeaderPartition(partition=index, leader_epoch=0)
        for index in (0, 9)
    ]
    topics = [
        offset_for_leader_epoch.OffsetForLeaderTopic(topic=about.topic, partitions=partitions)
    ]
    return [offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=topics)]


def init_producer_id_requests(_about: Subject, _version: int) -> list[Message]:
    return [
        init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        for name in (None, "golden-transactions")
    ]


def describe_topic_partitions_requests(about: Subject, _version: int) -> list[Message]:
    topics = [
        describe_topic_partitions.TopicRequest(name=name) for name in (about.topic, "no-such-topic")
    ]
    return [
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=topics, response_partition_limit=limit
        )
        for limit in (1, 2000)
    ]


def find_coordinator_requests(about: Subject, version: int) -> list[Message]:
    if version >= 4:
        keys = [about.group, "other"]
        return [find_coordinator.FindCoordinatorRequest(coordinator_keys=keys)]
    return [find_coordinator.FindCoordinatorRequest(key=about.group)]


def offset_commit_requests(about: Subject, _version: int) -> list[Message]:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=2, committed_metadata="note"
    )
    topic = offset_commit.OffsetCommitRequestTopic(
        name=about.topic, topic_id=about.topic_id, partitions=[partition]
    )
    return [offset_commit.OffsetCommitRequest(group_id=about.group, topics=[topic])]


def offset_fetch_requests(about: Subject, version: int) -> list[Message]:
    if version >= 8:
        topics = [
            offset_fetch.OffsetFetchRequestTopics(
                name=about.topic, topic_id=about.topic_id, partition_indexes=[0, 1]
            )
        ]
        groups = [offset_fetch.OffsetFetchRequestGroup(group_id=about.group, topics=topics)]
        return [offset_fetch.OffsetFetchRequest(groups=groups)]
    named = [offset_fetch.OffsetFetchRequestTopic(name=about.topic, partition_indexes=[0, 1])]
    return [offset_fetch.OffsetFetchRequest(group_id=about.group, topics=named)]


def describe_groups_requests(about: Subject, _version: int) -> list[Message]:
    return [describe_groups.DescribeGroupsRequest(groups=[about.group, "other"])]


Builder = Callable[[Subject, int], Sequence[Message]]
#: By API key, in the order of the sweep: topics are created before they get partitions or are
#: deleted.
BUILDERS: Final[dict[int, Builder]] = {
    0: produce_requests,
    1: fetch_requests,
    2: list_offsets_requests,
    3: metadata_requests,
    10: find_coordinator_requests,
    8: offset_commit_requests,
    9: offset_fetch_requests,
    15: describe_groups_requests,
    19: create_topics_requests,
    37: create_partitions_requests,
    20: delete_topics_requests,
    21: delete_records_requests,
    22: init_producer_id_requests,
    23: epoch_requests,
    32: describe_configs_requests,
    33: alter_configs_requests,
    44: incremental_alter_configs_requests,
    75: describe_topic_partitions_requests,
}
