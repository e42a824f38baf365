"""Features, producer ids, the first records of a controller, versions of records."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from lograft.metadata.activation import activation_records
from lograft.metadata.features import (
    SUPPORTED,
    Controller,
    effective_levels,
    raises_kraft_version,
    update_features,
)
from lograft.metadata.image import MetadataImage
from lograft.metadata.image_records import broker_record
from lograft.metadata.leadership_rules import MIN_ISR
from lograft.metadata.producer_ids import allocate_producer_ids
from lograft.metadata.record_versions import version_of
from lograft.metadata.types import ELR_VERSION, REPLICATION_VERSION, VersionRange
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.message import Message
from lograft.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from lograft.wire.record_frames import decode_record, encode_record
from lograft.wire.records.abort_transaction_record import AbortTransactionRecord
from lograft.wire.records.begin_transaction_record import BeginTransactionRecord
from lograft.wire.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.end_transaction_record import EndTransactionRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.register_broker_record import RegisterBrokerRecord
from lograft.wire.records.remove_topic_record import RemoveTopicRecord
from lograft.wire.records.topic_record import TopicRecord

Cluster = Callable[..., MetadataImage]
Apply = Callable[..., None]


def update(
    image: MetadataImage, name: str, level: int, kind: int = 1, *, version: int = 2
) -> tuple[int, int, tuple[Message, ...]]:
    key = FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind > 1
    )
    request = UpdateFeaturesRequest(feature_updates=[key])
    outcome = update_features(image, request, version=version, controller=Controller())
    return outcome.reply.error_code, len(outcome.reply.results), outcome.records


def register_lograft(image: MetadataImage, apply: Apply) -> None:
    """Its only broker supports the features of this release."""
    (broker,) = image.brokers.values()
    apply(image, [broker_record(replace(broker, features=SUPPORTED))])


def test_metadata_version_goes_down_only_where_the_records_did_not_change(
    cluster: Cluster, apply: Apply
) -> None:
    image = cluster(1)
    assert update(image, "metadata.version", 30) == (0, 1, ())
    bad = int(ErrorCode.INVALID_UPDATE_VERSION)
    for level in (29, 7):
        for kind in (1, 2, 3):
            assert update(image, "metadata.version", level, kind) == (bad, 0, ())
    apply(image, [FeatureLevelRecord(name="metadata.version", feature_level=29)])
    assert update(image, "metadata.version", 22, 2) == (bad, 0, ())  # 23 changed the records
    for kind in (2, 3):
        code, _, records = update(image, "metadata.version", 23, kind)
        assert code == 0
        assert records == (FeatureLevelRecord(name="metadata.version", feature_level=23),)
    assert update(image, "metadata.version", 30, 3)[0] == bad
    assert update(image, "metadata.version", 30)[0] == 0


def test_levels_of_unbuilt_features_are_stored_and_not_finalised(
    cluster: Cluster, apply: Apply
) -> None:
    image = cluster(1)
    register_lograft(image, apply)
    for name in ("share.version", "streams.version"):
        code, _, records = update(image, name, 1)
        assert (code, records) == (0, (FeatureLevelRecord(name=name, feature_level=1),))
        apply(image, records)
        assert image.features[name] == 1
        assert name not in effective_levels(image)
        assert update(image, name, 2)[0] == ErrorCode.INVALID_UPDATE_VERSION
        code, _, records = update(image, name, 0, 2)
        assert (code, records) == (0, (FeatureLevelRecord(name=name, feature_level=0),))


def test_kafka_brokers_must_support_a_feature_that_is_only_stored(
    cluster: Cluster, apply: Apply
) -> None:
    image = cluster(1)
    (broker,) = image.brokers.values()
    kafka = {
        name: levels for name, levels in broker.features.items() if name != REPLICATION_VERSION
    }
    apply(image, [broker_record(replace(broker, features=kafka))])
    assert update(image, "share.version", 1)[0] == ErrorCode.INVALID_UPDATE_VERSION
    newer = kafka | {"share.version": VersionRange(0, 1)}
    apply(image, [broker_record(replace(broker, features=newer))])
    assert update(image, "share.version", 1)[0] == 0


def test_dependencies_count_as_proposed(cluster: Cluster, apply: Apply) -> None:
    """A request may raise metadata.version together with a feature that depends on it."""
    image = cluster(1, elr=False)
    register_lograft(image, apply)
    apply(image, [FeatureLevelRecord(name="metadata.version", feature_level=22)])
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
            for name, level in ((ELR_VERSION, 1), ("metadata.version", 23))
        ]
    )
    assert update(image, ELR_VERSION, 1)[0] == ErrorCode.INVALID_UPDATE_VERSION
    assert update_features(image, request, version=2, controller=Controller()).reply.error_code == 0


def test_kraft_version_never_goes_down(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1)
    register_lograft(image, apply)
    for level, kind, code in (
        (1, 1, ErrorCode.NONE),
        (0, 2, ErrorCode.INVALID_UPDATE_VERSION),
        (0, 3, ErrorCode.INVALID_UPDATE_VERSION),
        (2, 1, ErrorCode.INVALID_UPDATE_VERSION),
    ):
        key = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[key])
        outcome = update_features(image, request, version=2, controller=Controller(kraft_version=1))
        assert (outcome.reply.error_code, outcome.records) == (code, ())


def test_raising_kraft_version_has_no_record_here(cluster: Cluster, apply: Apply) -> None:
    """The quorum writes it; the records of the other features do not change."""
    image = cluster(1, elr=False)
    register_lograft(image, apply)
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=1, upgrade_type=1)
            for name in ("kraft.version", ELR_VERSION)
        ]
    )
    outcome = update_features(image, request, version=2, controller=Controller())
    assert outcome.reply.error_code == 0
    levels = [each for each in outcome.records if isinstance(each, FeatureLevelRecord)]
    assert [(each.name, each.feature_level) for each in levels] == [(ELR_VERSION, 1)]
    assert raises_kraft_version(request, current=0)
    assert not raises_kraft_version(request, current=1)


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("nope", 1, 1),
        ("group.version", 1, 1),
        ("metadata.version", 31, 1),
        ("metadata.version", 0, 3),
        ("metadata.version", -1, 3),
        ("kraft.version", 1, 1),
        ("metadata.version", 30, 9),
    ],
)
def test_levels_that_cannot_be(cluster: Cluster, name: str, level: int, kind: int) -> None:
    bad = int(ErrorCode.INVALID_UPDATE_VERSION)
    for version in (1, 2):
        assert update(cluster(1), name, level, kind, version=version) == (bad, 0, ())


def test_features_that_are_not_built_are_not_shown(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1)
    apply(image, [FeatureLevelRecord(name="streams.version", feature_level=1)])
    shown = {"metadata.version": 30, ELR_VERSION: 1}
    assert effective_levels(image) == shown
    assert effective_levels(image, kraft_version=1) == shown | {"kraft.version": 1}


def test_with_elr_all_brokers_have_one_minimum(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1, elr=False)
    broker = image.brokers[1]
    apply(image, [broker_record(replace(broker, features={ELR_VERSION: VersionRange(0, 1)}))])
    for resource_name in ("1", "9"):
        apply(
            image,
            [ConfigRecord(resource_type=4, resource_name=resource_name, name=MIN_ISR, value="3")],
        )

    def raised(level: int, kind: int) -> UpdateFeaturesResponse:
        key = FeatureUpdateKey(feature=ELR_VERSION, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[key])
        outcome = update_features(
            image, request, version=2, controller=Controller(min_insync_replicas=2)
        )
        apply(image, outcome.records)
        return outcome.reply

    assert raised(1, 1).error_code == 0
    assert image.features[ELR_VERSION] == 1
    assert [image.config_of(4, name) for name in ("", "1", "9")] == [{MIN_ISR: "2"}, {}, {}]

    # While an eligible replica is the only one with the records, the downgrade is rejected.
    topic = [
        TopicRecord(name="t", topic_id=UUID(int=7)),
        PartitionRecord(
            topic_id=UUID(int=7), partition_id=0, replicas=[1], leader=-1, leader_epoch=0
        ),
    ]
    apply(image, topic)
    refusal = raised(0, 2)
    assert refusal.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "t-0" in str(refusal.error_message)
    apply(image, [RemoveTopicRecord(topic_id=UUID(int=7))])
    assert raised(0, 2).error_code == 0
    assert ELR_VERSION not in image.features


def test_elr_needs_a_metadata_version(cluster: Cluster, apply: Apply) -> None:
    image = cluster(elr=False)
    apply(image, [FeatureLevelRecord(name="metadata.version", feature_level=22)])
    assert update(image, ELR_VERSION, 1, 1, version=2)[0] == ErrorCode.INVALID_UPDATE_VERSION


def test_producer_ids_come_in_blocks(cluster: Cluster, apply: Apply) -> None:
    image = cluster(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=image.brokers[1].epoch)
    starts = []
    for _ in range(3):
        outcome = allocate_producer_ids(image, request)
        starts.append((outcome.reply.producer_id_start, outcome.reply.producer_id_len))
        apply(image, outcome.records)
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]


def test_producer_ids_are_for_registered_brokers(cluster: Cluster) -> None:
    image = cluster(1)
    for broker_id, epoch, code in (
        (2, 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, 99, ErrorCode.STALE_BROKER_EPOCH),
    ):
        with pytest.raises(Rejected) as refusal:
            allocate_producer_ids(
                image, AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
            )
        assert refusal.value.code == code
    image.producer_ids_next = 2**63 - 500
    with pytest.raises(Rejected, match="have been allocated"):
        allocate_producer_ids(
            image,
            AllocateProducerIdsRequest(broker_id=1, broker_epoch=image.brokers[1].epoch),
        )


def test_an_empty_log_begins_with_what_it_was_formatted_with(apply: Apply) -> None:
    image = MetadataImage()
    formatted: list[Message] = [
        FeatureLevelRecord(name="streams.version", feature_level=1),
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        ConfigRecord(resource_type=4, resource_name="", name="a", value="b"),
    ]
    records = activation_records(image, formatted)
    assert [type(record) for record in records] == [
        BeginTransactionRecord,
        FeatureLevelRecord,
        ConfigRecord,
        EndTransactionRecord,
    ]
    apply(image, records)
    assert image.features == {"metadata.version": 25}
    assert activation_records(image, formatted) == ()


def test_a_cluster_with_elr_begins_with_its_minimum(apply: Apply) -> None:
    image = MetadataImage()
    formatted = [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)]
    apply(image, activation_records(image, formatted, min_insync_replicas=2))
    assert image.features == {"metadata.version": 30, ELR_VERSION: 1}
    assert image.config_of(4, "") == {MIN_ISR: "2"}


def test_without_a_format_the_newest_version_is_taken(apply: Apply) -> None:
    image = MetadataImage()
    apply(image, activation_records(image, ()))
    assert image.features == {"metadata.version": 30}


def test_a_transaction_that_was_left_open_is_aborted(apply: Apply) -> None:
    image = MetadataImage()
    apply(image, [BeginTransactionRecord(), FeatureLevelRecord(name="x", feature_level=1)])
    records = activation_records(image, ())
    assert isinstance(records[0], AbortTransactionRecord)
    apply(image, records)
    assert image.features == {"metadata.version": 30}


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (RegisterBrokerRecord(), 1),
        (RegisterBrokerRecord(is_migrating_zk_broker=True), 2),
        (RegisterBrokerRecord(log_dirs=[UUID(int=9)]), 3),
        (RegisterBrokerRecord(cordoned_log_dirs=[]), 4),
        (BrokerRegistrationChangeRecord(fenced=-1), 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 1),
        (BrokerRegistrationChangeRecord(log_dirs=[UUID(int=9)]), 2),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 3),
        (PartitionRecord(replicas=[1]), 0),
        (PartitionRecord(replicas=[1], directories=[UUID(int=9)]), 1),
        (PartitionRecord(eligible_leader_replicas=[1]), 2),
        (PartitionChangeRecord(leader=3), 0),
        (PartitionChangeRecord(directories=[UUID(int=9)]), 1),
        (PartitionChangeRecord(last_known_elr=[1]), 2),
    ],
)
def test_a_record_is_written_in_the_lowest_version_that_holds_it(
    record: Message, version: int
) -> None:
    assert version_of(record) == version
    assert decode_record(encode_record(record, version)) == record
