"""Random requests, one after another: after every decision the image is valid (M4 and M6 of the
reliability notes), epochs never decrease, and an observer that replays the records has the same
image."""

from collections.abc import Callable
from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.metadata.brokers import (
    fence_broker,
    heartbeat,
    register_broker,
    unregister_broker,
)
from lograft.metadata.configs import incremental_alter_configs
from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import create_partitions
from lograft.metadata.record_versions import version_of
from lograft.metadata.topics import create_topics, delete_topics
from lograft.metadata.types import ControllerResult
from lograft.model.errors import Rejected
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.types import Epoch, Offset
from lograft.wire.message import Message
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from lograft.wire.messages.broker_registration import BrokerRegistrationRequest
from lograft.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from lograft.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lograft.wire.messages.delete_topics import DeleteTopicsRequest
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lograft.wire.messages.unregister_broker import UnregisterBrokerRequest
from lograft.wire.record_frames import decode_record, encode_record
from lograft.wire.records.feature_level_record import FeatureLevelRecord

CONFIG: BrokerConfig = broker_config(
    {
        "node.id": "1",
        "process.roles": "controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.quorum.voters": "1@localhost:9093",
    }
)
NAMES = ["a", "b", "c.d", "c_d"]
Decision = Callable[[MetadataImage], ControllerResult[object]]


def random_decision(chance: Random) -> Decision:
    broker_id, name = chance.randrange(1, 5), chance.choice(NAMES)

    def new_id() -> UUID:
        return UUID(bytes=chance.randbytes(16))

    def epoch(image: MetadataImage) -> int:
        broker = image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    match chance.randrange(9):
        case 0 | 1:
            topic = CreatableTopic(
                name=name,
                num_partitions=chance.randrange(1, 6),
                replication_factor=chance.randrange(1, 4),
            )
            request = CreateTopicsRequest(topics=[topic])
            return lambda image: create_topics(image, request, config=CONFIG, new_id=new_id)
        case 2:
            deletion = DeleteTopicsRequest(topic_names=[name])
            return lambda image: delete_topics(image, deletion, config=CONFIG)
        case 3:
            more = CreatePartitionsTopic(name=name, count=chance.randrange(9), assignments=None)
            return lambda image: create_partitions(image, CreatePartitionsRequest(topics=[more]))
        case 4:
            change = AlterableConfig(name="retention.ms", config_operation=0, value="7")
            resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[change])
            alter = IncrementalAlterConfigsRequest(resources=[resource])
            return lambda image: incremental_alter_configs(image, alter, config=CONFIG)
        case 5:
            registration = BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id="c",
                incarnation_id=new_id(),
                log_dirs=[UUID(int=1000 + broker_id)],
            )
            return lambda image: register_broker(image, registration, cluster_id="c", config=CONFIG)
        case 6 | 7:
            shut_down = chance.random() < 0.2
            return lambda image: heartbeat(
                image,
                BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=epoch(image),
                    current_metadata_offset=image.offset,
                    want_shut_down=shut_down,
                ),
                config=CONFIG,
            )
        case _:
            if chance.random() < 0.2:
                removal = UnregisterBrokerRequest(broker_id=broker_id)
                return lambda image: unregister_broker(image, removal, config=CONFIG)
            return lambda image: fence_broker(image, broker_id, config=CONFIG)


def check(image: MetadataImage, before: MetadataImage) -> None:
    led: dict[int, int] = {}
    for topic_id, topic in image.topics.items():
        assert list(topic.partitions) == list(range(len(topic.partitions)))
        for index, state in topic.partitions.items():
            where = f"{topic.name}-{index}: {state}"
            assert len(set(state.replicas)) == len(state.replicas) == len(state.directories), where
            assert state.isr, where
            assert set(state.isr) <= set(state.replicas), where
            assert not set(state.elr) & set(state.isr), where
            if state.leader >= 0:
                assert state.leader in state.isr, where
                assert image.brokers[state.leader].is_active, where
                led[state.leader] = led.get(state.leader, 0) + 1
            old = before.partition(topic_id, index)
            if old is not None and old != state:
                assert state.partition_epoch == old.partition_epoch + 1, where
                assert (state.leader_epoch > old.leader_epoch) == (state.leader != old.leader), (
                    where
                )
                if state.leader != old.leader and state.leader >= 0:
                    assert state.leader in old.isr, where
    assert image.leader_counts == led
    assert set(image.topic_ids.values()) == set(image.topics)


def through_the_log(records: tuple[Message, ...]) -> list[Message]:
    decoded = [decode_record(encode_record(record, version_of(record))) for record in records]
    assert all(isinstance(record, Message) for record in decoded)
    return [record for record in decoded if isinstance(record, Message)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 80))
def test_the_image_stays_sound(seed: int, steps: int) -> None:
    chance = Random(seed)
    image, observer = MetadataImage(), MetadataImage()
    first = (FeatureLevelRecord(name="metadata.version", feature_level=30),)
    image.apply(first, offset=Offset(0), epoch=Epoch(1))
    observer.apply(first, offset=Offset(0), epoch=Epoch(1))
    for _ in range(steps):
        before = image.copy()
        try:
            outcome = random_decision(chance)(image)
        except Rejected:
            assert image == before
            continue
        assert image == before
        end = Offset(image.offset + len(outcome.records))
        image.apply(outcome.records, offset=end, epoch=Epoch(1))
        check(image, before)
        observer.apply(through_the_log(outcome.records), offset=end, epoch=Epoch(1))
        assert observer == image
    rebuilt = MetadataImage()
    rebuilt.apply(image.records(), offset=image.offset, epoch=image.epoch)
    assert rebuilt == image
