"""The records of an image: the content of a snapshot, in the order in which Kafka writes it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from lograft.metadata.types import (
    METADATA_VERSION,
    BrokerState,
    ControllerState,
    PartitionState,
    TopicState,
)
from lograft.security.acls import Acl
from lograft.wire.message import Message
from lograft.wire.records.access_control_entry_record import AccessControlEntryRecord
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
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
from lograft.wire.records.topic_record import TopicRecord
from lograft.wire.records.zk_migration_state_record import ZkMigrationStateRecord

if TYPE_CHECKING:
    from lograft.metadata.image import MetadataImage


def image_records(image: "MetadataImage") -> Iterator[Message]:
    # metadata.version comes first, because readers need it to interpret the other records.
    if METADATA_VERSION in image.features:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.metadata_version)
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield partition_record(topic, index, partition)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    for entity, quotas in image.client_quotas.items():
        parts = [EntityData(entity_type=part.type, entity_name=part.name) for part in entity]
        for key, limit in quotas.items():
            yield ClientQuotaRecord(entity=parts, key=key, value=limit, remove=False)
    if image.producer_ids_next:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids_next
        )
    for acl_id, acl in image.acls.items():
        yield acl_record(acl_id, acl)
    yield from image.scram.values()
    yield from image.delegation_tokens.values()
    if image.zk_migration_state:
        yield ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state)


def acl_record(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def partition_record(topic: TopicState, index: int, state: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing_replicas),
        adding_replicas=list(state.adding_replicas),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=list(state.directories),
        eligible_leader_replicas=list(state.elr) or None,
        last_known_elr=list(state.last_known_elr) or None,
        replication_mode=state.mode,
        raft_life=state.life,
    )


def broker_record(broker: BrokerState) -> RegisterBrokerRecord:
    cordoned = broker.cordoned_log_dirs
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=end.name, host=end.host, port=end.port, security_protocol=end.security_protocol
            )
            for end in broker.endpoints
        ],
        features=[
            BrokerFeature(
                name=name,
                min_supported_version=versions.min_version,
                max_supported_version=versions.max_version,
            )
            for name, versions in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def controller_record(controller: ControllerState) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=end.name, host=end.host, port=end.port, security_protocol=end.security_protocol
            )
            for end in controller.endpoints
        ],
        features=[
            ControllerFeature(
                name=name,
                min_supported_version=versions.min_version,
                max_supported_version=versions.max_version,
            )
            for name, versions in controller.features.items()
        ],
    )
