"""The image: every record type, transactions, deltas, and that records() restores the image."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.metadata.errors import InconsistentRecord
from lograft.metadata.image import MetadataImage
from lograft.metadata.replay import REPLAY
from lograft.metadata.types import ConfigResource, QuotaEntity
from lograft.model.types import Epoch, Offset, ReplicationMode
from lograft.wire.message import Message
from lograft.wire.records.abort_transaction_record import AbortTransactionRecord
from lograft.wire.records.access_control_entry_record import AccessControlEntryRecord
from lograft.wire.records.begin_transaction_record import BeginTransactionRecord
from lograft.wire.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from lograft.wire.records.clear_elr_record import ClearElrRecord
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from lograft.wire.records.end_transaction_record import EndTransactionRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.fence_broker_record import FenceBrokerRecord
from lograft.wire.records.no_op_record import NoOpRecord
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.producer_ids_record import ProducerIdsRecord
from lograft.wire.records.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from lograft.wire.records.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from lograft.wire.records.remove_access_control_entry_record import (
    RemoveAccessControlEntryRecord,
)
from lograft.wire.records.remove_delegation_token_record import RemoveDelegationTokenRecord
from lograft.wire.records.remove_topic_record import RemoveTopicRecord
from lograft.wire.records.remove_user_scram_credential_record import (
    RemoveUserScramCredentialRecord,
)
from lograft.wire.records.topic_record import TopicRecord
from lograft.wire.records.unfence_broker_record import UnfenceBrokerRecord
from lograft.wire.records.unregister_broker_record import UnregisterBrokerRecord
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord
from lograft.wire.records.zk_migration_state_record import ZkMigrationStateRecord
from tests.unit.metadata.conftest import append

A, B = UUID(int=0xA), UUID(int=0xB)
DISK = UUID(int=0xD)


def image_of(*records: Message) -> MetadataImage:
    image = MetadataImage()
    image.apply(records, offset=Offset(len(records) - 1), epoch=Epoch(1))
    return image


def broker(broker_id: int = 1, epoch: int = 5, **more: Any) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092)],
        features=[
            BrokerFeature(
                name="metadata.version", min_supported_version=7, max_supported_version=30
            )
        ],
        log_dirs=[DISK],
        **more,
    )


def partition(topic_id: UUID = A, index: int = 0, **more: Any) -> PartitionRecord:
    values: dict[str, Any] = {
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [DISK, UUID(int=0)],
    }
    return PartitionRecord(partition_id=index, topic_id=topic_id, **(values | more))


def test_every_kind_of_metadata_record_has_its_place() -> None:
    transaction = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
    numbers = {kind.KEY for kind in REPLAY} | {kind.KEY for kind in transaction}
    # Kafka 4.3 has the numbers 0-28 except three that are obsolete.
    assert numbers == set(range(29)) - {6, 13, 16}


def test_a_topic_lives_and_goes_with_its_settings() -> None:
    image = image_of(
        TopicRecord(name="a.b", topic_id=A),
        ConfigRecord(resource_type=2, resource_name="a.b", name="retention.ms", value="5"),
        partition(),
        partition(index=1, leader=2),
    )
    assert image.topic_ids == {"a.b": A}
    assert image.similar_names == {"a_b": {"a.b": None}}
    assert image.config_of(2, "a.b") == {"retention.ms": "5"}
    assert image.leader_counts == {1: 1, 2: 1}
    assert [list(held) for held in image.held_by.values()] == [[(A, 0), (A, 1)]] * 2
    assert list(image.not_preferred) == [(A, 1)]
    state = image.partition(A, 0)
    assert state is not None
    assert state.replicas == (1, 2)
    assert state.directories == (DISK, UUID(int=0))

    image.replay(RemoveTopicRecord(topic_id=A))
    assert image == MetadataImage(offset=Offset(3), epoch=Epoch(1))


def test_a_new_leader_moves_both_epochs_another_change_only_one() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition())
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1]))
    state = image.partition(A, 0)
    assert state is not None
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((1,), 1, 0, 1)
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=A, leader=-1, isr=[]))
    state = image.partition(A, 0)
    assert state is not None
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((), -1, 1, 2)
    assert image.leader_counts == {}
    assert list(image.leaderless) == [(A, 0)]


def test_replicas_that_change_keep_their_directories() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition())
    image.replay(
        PartitionChangeRecord(partition_id=0, topic_id=A, replicas=[3, 1], adding_replicas=[3])
    )
    state = image.partition(A, 0)
    assert state is not None
    assert state.directories == (UUID(int=0), DISK)
    assert state.adding_replicas == (3,)
    assert image.held_by == {1: {(A, 0): None}, 3: {(A, 0): None}}
    assert list(image.reassigning) == [(A, 0)]


def test_the_mode_of_replication_stays_until_a_record_names_another() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition())
    change = PartitionChangeRecord(partition_id=0, topic_id=A, replication_mode=2, raft_life=7)
    image.replay(change)
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1]))
    state = image.partition(A, 0)
    assert state is not None
    assert (state.mode, state.life) == (ReplicationMode.RAFT, 7)
    again = image_of(*image.records())
    assert again.partition(A, 0) == state
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=A, replication_mode=0))
    state = image.partition(A, 0)
    assert state is not None
    assert (state.mode, state.life) == (ReplicationMode.ISR, 7)


def test_elr_is_kept_and_cleared() -> None:
    records = [
        TopicRecord(name="a", topic_id=A),
        TopicRecord(name="b", topic_id=B),
        partition(A, isr=[], eligible_leader_replicas=[1], last_known_elr=[2]),
        partition(B, isr=[], eligible_leader_replicas=[1]),
    ]
    image = image_of(*records)
    image.replay(ClearElrRecord(topic_name="a"))
    assert image.topics[A].partitions[0].elr == ()
    assert image.topics[B].partitions[0].elr == (1,)
    image.replay(ClearElrRecord(topic_name=""))
    assert image.topics[B].partitions[0].elr == ()


def flags(image: MetadataImage) -> tuple[bool, bool]:
    return image.brokers[1].fenced, image.brokers[1].is_active


def test_a_broker_is_registered_unfenced_shut_down_and_unregistered() -> None:
    image = image_of(broker())
    assert flags(image) == (True, False)
    image.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    assert flags(image) == (False, True)
    image.replay(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1)
    )
    assert flags(image) == (False, False)
    image.replay(
        BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=5, fenced=1, log_dirs=[A, B], cordoned_log_dirs=[B]
        )
    )
    assert flags(image) == (True, False)
    assert image.brokers[1].log_dirs == (A, B)
    assert image.brokers[1].cordoned_log_dirs == (B,)
    image.replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert image.brokers == {}


def test_the_older_records_fence_and_unfence_too() -> None:
    image = image_of(broker(), UnfenceBrokerRecord(id=1, epoch=5))
    assert flags(image) == (False, True)
    image.replay(FenceBrokerRecord(id=1, epoch=5))
    assert flags(image) == (True, False)


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="a", topic_id=B),
        TopicRecord(name="c", topic_id=A),
        RemoveTopicRecord(topic_id=B),
        partition(B),
        PartitionChangeRecord(partition_id=1, topic_id=A),
        PartitionChangeRecord(partition_id=0, topic_id=B),
        ClearElrRecord(topic_name="nope"),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        UnfenceBrokerRecord(id=2, epoch=5),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=-1),
        ProducerIdsRecord(next_producer_id=999),
        RemoveAccessControlEntryRecord(id=A),
        EndTransactionRecord(),
        AbortTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_contradicts_the_image_is_refused(record: Message) -> None:
    image = image_of(
        TopicRecord(name="a", topic_id=A),
        partition(),
        broker(),
        ProducerIdsRecord(next_producer_id=1000),
    )
    before = image.copy()
    with pytest.raises(InconsistentRecord):
        image.replay(record)
    assert image == before


def test_a_transaction_appears_at_once_or_not_at_all() -> None:
    image = MetadataImage()
    delta = image.apply(
        [
            BeginTransactionRecord(name="Bootstrap records"),
            FeatureLevelRecord(name="metadata.version", feature_level=30),
        ],
        offset=Offset(1),
        epoch=Epoch(1),
    )
    assert delta.is_empty
    assert (image.in_transaction, image.is_empty) == (True, True)
    with pytest.raises(InconsistentRecord):
        image.copy().replay(BeginTransactionRecord())
    aborted = image.copy()

    delta = image.apply([EndTransactionRecord()], offset=Offset(2), epoch=Epoch(1))
    assert list(delta.features) == ["metadata.version"]
    assert image.metadata_version == 30
    assert (image.in_transaction, image.is_empty) == (False, False)

    aborted.apply([AbortTransactionRecord(reason="no")], offset=Offset(2), epoch=Epoch(1))
    assert aborted == MetadataImage(offset=Offset(2), epoch=Epoch(1))


def test_settings_quotas_and_security_are_kept_and_removed() -> None:
    entity = [EntityData(entity_type="user", entity_name=None)]
    image = image_of(
        ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=10.5),
        AccessControlEntryRecord(id=A, resource_name="t", principal="User:x"),
        UserScramCredentialRecord(name="x", mechanism=1, salt=b"s", iterations=4096),
        DelegationTokenRecord(token_id="t", owner="User:x"),
        FeatureLevelRecord(name="group.version", feature_level=1),
        ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        ZkMigrationStateRecord(zk_migration_state=1),
        RegisterControllerRecord(
            controller_id=1,
            incarnation_id=B,
            end_points=[ControllerEndpoint(name="CONTROLLER", host="h", port=9093)],
            features=[ControllerFeature(name="f", max_supported_version=2)],
        ),
        NoOpRecord(),
    )
    assert image.client_quotas == {(QuotaEntity("user", None),): {"producer_byte_rate": 10.5}}
    assert image.configs == {ConfigResource(4, ""): {"a": "1"}}
    assert image.controllers[1].endpoints[0].port == 9093
    for record in (
        ConfigRecord(resource_type=4, resource_name="", name="a", value=None),
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
        RemoveAccessControlEntryRecord(id=A),
        RemoveUserScramCredentialRecord(name="x", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t"),
        FeatureLevelRecord(name="group.version", feature_level=0),
        ZkMigrationStateRecord(zk_migration_state=0),
    ):
        image.replay(record)
    image.controllers.clear()
    image.producer_ids_next = 0
    assert image == MetadataImage(offset=image.offset, epoch=image.epoch)


def test_a_delta_names_the_difference_only() -> None:
    image = image_of(TopicRecord(name="a", topic_id=A), partition(), broker())
    delta = image.apply(
        [
            TopicRecord(name="b", topic_id=B),
            partition(B),
            partition(B, index=1),
            PartitionChangeRecord(partition_id=0, topic_id=A, leader=2),
            partition(A, index=1),
            ConfigRecord(resource_type=2, resource_name="b", name="x", value="1"),
            UnfenceBrokerRecord(id=1, epoch=5),
        ],
        offset=Offset(9),
        epoch=Epoch(2),
    )
    assert list(delta.created_topics) == [B]
    assert delta.changed_topics == {A: {0: None, 1: None}}
    assert list(delta.configs) == [ConfigResource(2, "b")]
    assert list(delta.brokers) == [1]
    assert (image.offset, image.epoch) == (9, 2)

    topic_a = image.topics[A]
    delta = image.apply(
        [
            PartitionChangeRecord(partition_id=0, topic_id=A, leader=1),
            RemoveTopicRecord(topic_id=A),
            TopicRecord(name="a", topic_id=UUID(int=0xC)),
            RemoveTopicRecord(topic_id=UUID(int=0xC)),
        ],
        offset=Offset(10),
        epoch=Epoch(2),
    )
    assert delta.changed_topics == {}
    assert delta.created_topics == {}
    assert delta.deleted_topics == {A: topic_a}


def test_a_copy_stands_still() -> None:
    image = image_of(
        TopicRecord(name="a_b", topic_id=A),
        partition(),
        broker(),
        ConfigRecord(resource_type=2, resource_name="a_b", name="x", value="1"),
    )
    copy = image.copy()
    twin = image.copy()
    image.replay(partition(index=1))
    image.replay(ConfigRecord(resource_type=2, resource_name="a_b", name="y", value="1"))
    image.replay(RemoveTopicRecord(topic_id=A))
    image.replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert copy == twin


def rebuilt(records: Iterable[Message], like: MetadataImage) -> MetadataImage:
    image = MetadataImage()
    image.apply(records, offset=like.offset, epoch=like.epoch)
    return image


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Random records, without those that contradict the image."""
    ids = st.integers(1, 4)
    names = st.sampled_from(["a", "b", "a.b", "a_b"])
    topic_ids = ids.map(lambda number: UUID(int=number + 100))
    replicas = st.lists(ids, min_size=1, max_size=3, unique=True)
    some_replicas = st.none() | replicas
    records = st.one_of(
        st.builds(TopicRecord, name=names, topic_id=topic_ids),
        st.builds(RemoveTopicRecord, topic_id=topic_ids),
        st.builds(
            partition,
            topic_ids,
            st.integers(0, 2),
            replicas=replicas,
            isr=replicas,
            directories=st.just([]),
            leader=st.integers(-1, 4),
            eligible_leader_replicas=some_replicas,
        ),
        st.builds(
            PartitionChangeRecord,
            partition_id=st.integers(0, 2),
            topic_id=topic_ids,
            isr=some_replicas,
            leader=st.integers(-2, 4),
            replicas=some_replicas,
            removing_replicas=some_replicas,
            eligible_leader_replicas=some_replicas,
            last_known_elr=some_replicas,
        ),
        st.builds(
            ConfigRecord,
            resource_type=st.sampled_from([2, 4]),
            resource_name=names,
            name=names,
            value=st.none() | st.text(max_size=3),
        ),
        st.builds(broker, ids, st.integers(1, 3), fenced=st.booleans()),
        st.builds(
            BrokerRegistrationChangeRecord,
            broker_id=ids,
            broker_epoch=st.integers(1, 3),
            fenced=st.integers(-1, 1),
            in_controlled_shutdown=st.integers(0, 1),
        ),
        st.builds(UnregisterBrokerRecord, broker_id=ids, broker_epoch=st.integers(1, 3)),
        st.builds(FeatureLevelRecord, name=names, feature_level=st.integers(0, 3)),
        st.builds(ProducerIdsRecord, next_producer_id=st.integers(0, 9)),
        st.builds(AccessControlEntryRecord, id=topic_ids, principal=names),
        st.builds(RemoveAccessControlEntryRecord, id=topic_ids),
        st.builds(
            ClientQuotaRecord,
            entity=names.map(lambda name: [EntityData(entity_type="user", entity_name=name)]),
            key=names,
            value=st.floats(0, 9),
            remove=st.booleans(),
        ),
        st.builds(ClearElrRecord, topic_name=names | st.just("")),
        st.just(BeginTransactionRecord()),
        st.just(EndTransactionRecord()),
        st.just(AbortTransactionRecord()),
    )
    return draw(st.lists(records, max_size=40))


@settings(max_examples=150, deadline=None)
@given(histories())
def test_the_records_of_an_image_give_the_image(history: list[Message]) -> None:
    image = MetadataImage()
    for record in history:
        with suppress(InconsistentRecord):
            image.replay(record)
    if image.in_transaction:
        # Records of the transaction are not applied, whether it is committed later or not.
        image.replay(AbortTransactionRecord())
    assert rebuilt(image.records(), image) == image
    assert image.copy() == image


def test_replicas_are_offline_with_their_broker_or_their_disk(
    cluster: Callable[..., MetadataImage],
) -> None:
    image = cluster(1, 2, 3)
    directories = [UUID(int=5001), UUID(int=666), UUID(int=5003)]
    append(
        image,
        [
            TopicRecord(name="a", topic_id=A),
            PartitionRecord(
                topic_id=A, partition_id=0, replicas=[1, 2, 3], isr=[3], directories=directories
            ),
        ],
    )
    state = image.topics[A].partitions[0]
    assert image.offline_replicas(state, [1, 2]) == [2, 3]
