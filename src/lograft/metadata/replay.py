"""Replays metadata records into an image; nothing else changes the cluster's state."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from lograft.metadata.delta import MetadataDelta
from lograft.metadata.errors import InconsistentRecord
from lograft.metadata.indexes import remove_from_indexes, update_claim, update_indexes
from lograft.metadata.topic_names import similar_form
from lograft.metadata.types import (
    UNASSIGNED_DIRECTORY,
    BrokerState,
    ConfigResource,
    ControllerState,
    Endpoint,
    PartitionState,
    QuotaEntity,
    ResourceType,
    TopicState,
    VersionRange,
)
from lograft.model.types import NO_EPOCH, BrokerEpoch, ReplicationMode, TopicIdPartition
from lograft.security.acls import Acl
from lograft.wire.message import Message
from lograft.wire.records.access_control_entry_record import AccessControlEntryRecord
from lograft.wire.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from lograft.wire.records.clear_elr_record import ClearElrRecord
from lograft.wire.records.client_quota_record import ClientQuotaRecord
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.fence_broker_record import FenceBrokerRecord
from lograft.wire.records.no_op_record import NoOpRecord
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.producer_ids_record import ProducerIdsRecord
from lograft.wire.records.register_broker_record import RegisterBrokerRecord
from lograft.wire.records.register_controller_record import RegisterControllerRecord
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

if TYPE_CHECKING:
    from lograft.metadata.image import MetadataImage

#: Values of a PartitionChangeRecord's fields that mean "unchanged".
LEADER_UNCHANGED: Final = -2
RECOVERY_UNCHANGED: Final = -1
MODE_UNCHANGED: Final = -1


def topic(image: "MetadataImage", record: TopicRecord, delta: MetadataDelta) -> None:
    if record.name in image.topic_ids or record.topic_id in image.topics:
        raise InconsistentRecord(f"topic {record.name!r} ({record.topic_id}) already exists")
    image.topics[record.topic_id] = TopicState(record.name, record.topic_id, {})
    image.topic_ids[record.name] = record.topic_id
    form = similar_form(record.name)
    if form is not None:
        image.similar_names.setdefault(form, {})[record.name] = None
    delta.created_topics[record.topic_id] = None


def remove_topic(image: "MetadataImage", record: RemoveTopicRecord, delta: MetadataDelta) -> None:
    removed = image.topics.pop(record.topic_id, None)
    if removed is None:
        raise InconsistentRecord(f"topic {record.topic_id} to remove does not exist")
    del image.topic_ids[removed.name]
    form = similar_form(removed.name)
    if form is not None:
        names = image.similar_names[form]
        del names[removed.name]
        if not names:
            del image.similar_names[form]
    for index, state in removed.partitions.items():
        remove_from_indexes(image, TopicIdPartition(removed.topic_id, index), state)
    resource = ConfigResource(ResourceType.TOPIC, removed.name)
    if image.configs.pop(resource, None) is not None:
        update_claim(image, removed.name)
        delta.configs[resource] = None
    delta.topic_deleted(removed)


def partition(image: "MetadataImage", record: PartitionRecord, delta: MetadataDelta) -> None:
    owner = _topic_of(image, record.topic_id)
    _put_partition(image, owner, record.partition_id, new_partition_state(record), delta)


def new_partition_state(record: PartitionRecord) -> PartitionState:
    replicas = tuple(record.replicas)
    return PartitionState(
        replicas=replicas,
        directories=tuple(record.directories) or (UNASSIGNED_DIRECTORY,) * len(replicas),
        isr=tuple(record.isr),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        leader=record.leader,
        leader_recovery=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        mode=ReplicationMode(record.replication_mode),
        life=record.raft_life,
    )


def partition_change(
    image: "MetadataImage", record: PartitionChangeRecord, delta: MetadataDelta
) -> None:
    owner = _topic_of(image, record.topic_id)
    before = owner.partitions.get(record.partition_id)
    if before is None:
        raise InconsistentRecord(f"partition {owner.name}-{record.partition_id} does not exist")
    _put_partition(image, owner, record.partition_id, changed_partition(before, record), delta)


def changed_partition(before: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    replicas = before.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories:
        directories = tuple(record.directories)
    elif replicas == before.replicas:
        directories = before.directories
    else:
        known = dict(zip(before.replicas, before.directories, strict=True))
        directories = tuple(known.get(replica, UNASSIGNED_DIRECTORY) for replica in replicas)
    new_leader = record.leader != LEADER_UNCHANGED
    new_recovery = record.leader_recovery_state != RECOVERY_UNCHANGED
    new_mode = record.replication_mode != MODE_UNCHANGED
    return PartitionState(
        replicas=replicas,
        directories=directories,
        isr=_new_or_unchanged(before.isr, record.isr),
        removing_replicas=_new_or_unchanged(before.removing_replicas, record.removing_replicas),
        adding_replicas=_new_or_unchanged(before.adding_replicas, record.adding_replicas),
        elr=_new_or_unchanged(before.elr, record.eligible_leader_replicas),
        last_known_elr=_new_or_unchanged(before.last_known_elr, record.last_known_elr),
        leader=record.leader if new_leader else before.leader,
        leader_recovery=record.leader_recovery_state if new_recovery else before.leader_recovery,
        leader_epoch=before.leader_epoch + new_leader,
        partition_epoch=before.partition_epoch + 1,
        mode=ReplicationMode(record.replication_mode) if new_mode else before.mode,
        life=before.life if record.raft_life == NO_EPOCH else record.raft_life,
    )


def clear_elr(image: "MetadataImage", record: ClearElrRecord, delta: MetadataDelta) -> None:
    if record.topic_name:
        topic_id = image.topic_ids.get(record.topic_name)
        if topic_id is None:
            raise InconsistentRecord(f"topic {record.topic_name!r} does not exist")
        owners = [image.topics[topic_id]]
    else:
        owners = list(image.topics.values())
    for owner in owners:
        for index, state in owner.partitions.items():
            if state.elr or state.last_known_elr:
                cleared = state._replace(
                    elr=(), last_known_elr=(), partition_epoch=state.partition_epoch + 1
                )
                _put_partition(image, owner, index, cleared, delta)


def config(image: "MetadataImage", record: ConfigRecord, delta: MetadataDelta) -> None:
    resource = ConfigResource(record.resource_type, record.resource_name)
    if record.value is not None:
        image.configs.setdefault(resource, {})[record.name] = record.value
    else:
        values = image.configs.get(resource)
        if values is not None:
            values.pop(record.name, None)
            if not values:
                del image.configs[resource]
    if resource.type == ResourceType.TOPIC:
        update_claim(image, resource.name)
    delta.configs[resource] = None


def register_broker(
    image: "MetadataImage", record: RegisterBrokerRecord, delta: MetadataDelta
) -> None:
    cordoned = record.cordoned_log_dirs
    image.brokers[record.broker_id] = BrokerState(
        broker_id=record.broker_id,
        epoch=BrokerEpoch(record.broker_epoch),
        incarnation_id=record.incarnation_id,
        endpoints=tuple(
            Endpoint(end.name, end.host, end.port, end.security_protocol)
            for end in record.end_points
        ),
        features={
            feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
            for feature in record.features
        },
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
        is_migrating_zk_broker=record.is_migrating_zk_broker,
    )
    delta.brokers[record.broker_id] = None


def unregister_broker(
    image: "MetadataImage", record: UnregisterBrokerRecord, delta: MetadataDelta
) -> None:
    _broker_of(image, record.broker_id, record.broker_epoch)
    del image.brokers[record.broker_id]
    delta.brokers[record.broker_id] = None


def fence_broker(image: "MetadataImage", record: FenceBrokerRecord, delta: MetadataDelta) -> None:
    broker = _broker_of(image, record.id, record.epoch)
    image.brokers[record.id] = replace(broker, fenced=True)
    delta.brokers[record.id] = None


def unfence_broker(
    image: "MetadataImage", record: UnfenceBrokerRecord, delta: MetadataDelta
) -> None:
    broker = _broker_of(image, record.id, record.epoch)
    image.brokers[record.id] = replace(broker, fenced=False)
    delta.brokers[record.id] = None


def broker_registration_change(
    image: "MetadataImage", record: BrokerRegistrationChangeRecord, delta: MetadataDelta
) -> None:
    broker = _broker_of(image, record.broker_id, record.broker_epoch)
    if record.fenced:
        broker = replace(broker, fenced=record.fenced > 0)
    if record.in_controlled_shutdown:
        broker = replace(broker, in_controlled_shutdown=record.in_controlled_shutdown > 0)
    if record.log_dirs:
        broker = replace(broker, log_dirs=tuple(record.log_dirs))
    if record.cordoned_log_dirs is not None:
        broker = replace(broker, cordoned_log_dirs=tuple(record.cordoned_log_dirs))
    image.brokers[record.broker_id] = broker
    delta.brokers[record.broker_id] = None


def register_controller(
    image: "MetadataImage", record: RegisterControllerRecord, delta: MetadataDelta
) -> None:
    image.controllers[record.controller_id] = ControllerState(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        zk_migration_ready=record.zk_migration_ready,
        endpoints=tuple(
            Endpoint(end.name, end.host, end.port, end.security_protocol)
            for end in record.end_points
        ),
        features={
            feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
            for feature in record.features
        },
    )
    delta.controllers[record.controller_id] = None


def feature_level(image: "MetadataImage", record: FeatureLevelRecord, delta: MetadataDelta) -> None:
    if record.feature_level == 0:
        image.features.pop(record.name, None)
    else:
        image.features[record.name] = record.feature_level
    delta.features[record.name] = None


def producer_ids(image: "MetadataImage", record: ProducerIdsRecord, delta: MetadataDelta) -> None:
    if record.next_producer_id < image.producer_ids_next:
        raise InconsistentRecord(
            f"producer ids decrease from {image.producer_ids_next} to {record.next_producer_id}"
        )
    image.producer_ids_next = record.next_producer_id
    delta.producer_ids = True


def client_quota(image: "MetadataImage", record: ClientQuotaRecord, delta: MetadataDelta) -> None:
    parts = (QuotaEntity(part.entity_type, part.entity_name) for part in record.entity)
    # Releases of Kafka write the types of an entity in different orders.
    entity = tuple(sorted(parts, key=lambda part: part.type))
    if not record.remove:
        image.client_quotas.setdefault(entity, {})[record.key] = record.value
    else:
        values = image.client_quotas.get(entity)
        if values is not None:
            values.pop(record.key, None)
            if not values:
                del image.client_quotas[entity]
    delta.quotas = True


def access_control_entry(
    image: "MetadataImage", record: AccessControlEntryRecord, delta: MetadataDelta
) -> None:
    acl = Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    _forget_acl_id(image, record.id)
    image.acls[record.id] = acl
    image.acl_ids[acl] = record.id
    delta.acls[record.id] = None
    delta.security = True


def _forget_acl_id(image: "MetadataImage", acl_id: UUID) -> None:
    acl = image.acls.get(acl_id)
    if acl is not None and image.acl_ids.get(acl) == acl_id:
        del image.acl_ids[acl]


def remove_access_control_entry(
    image: "MetadataImage", record: RemoveAccessControlEntryRecord, delta: MetadataDelta
) -> None:
    if record.id not in image.acls:
        raise InconsistentRecord(f"ACL {record.id} to remove does not exist")
    _forget_acl_id(image, record.id)
    del image.acls[record.id]
    delta.acls[record.id] = None
    delta.security = True


def user_scram_credential(
    image: "MetadataImage", record: UserScramCredentialRecord, delta: MetadataDelta
) -> None:
    image.scram[record.mechanism, record.name] = record
    delta.security = True


def remove_user_scram_credential(
    image: "MetadataImage", record: RemoveUserScramCredentialRecord, delta: MetadataDelta
) -> None:
    image.scram.pop((record.mechanism, record.name), None)
    delta.security = True


def delegation_token(
    image: "MetadataImage", record: DelegationTokenRecord, delta: MetadataDelta
) -> None:
    image.delegation_tokens[record.token_id] = record
    delta.security = True


def remove_delegation_token(
    image: "MetadataImage", record: RemoveDelegationTokenRecord, delta: MetadataDelta
) -> None:
    image.delegation_tokens.pop(record.token_id, None)
    delta.security = True


def zk_migration_state(
    image: "MetadataImage", record: ZkMigrationStateRecord, delta: MetadataDelta
) -> None:
    image.zk_migration_state = record.zk_migration_state


def no_op(image: "MetadataImage", record: NoOpRecord, delta: MetadataDelta) -> None:
    """The record only advances the offset, which shows that the log is live."""


def _topic_of(image: "MetadataImage", topic_id: UUID) -> TopicState:
    owner = image.topics.get(topic_id)
    if owner is None:
        raise InconsistentRecord(f"topic {topic_id} does not exist")
    return owner


def _broker_of(image: "MetadataImage", broker_id: int, epoch: int) -> BrokerState:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise InconsistentRecord(f"broker {broker_id} is not registered with epoch {epoch}")
    return broker


def _new_or_unchanged(before: tuple[int, ...], after: list[int] | None) -> tuple[int, ...]:
    return before if after is None else tuple(after)


def _put_partition(
    image: "MetadataImage",
    owner: TopicState,
    index: int,
    state: PartitionState,
    delta: MetadataDelta,
) -> None:
    update_indexes(
        image, TopicIdPartition(owner.topic_id, index), owner.partitions.get(index), state
    )
    owner.partitions[index] = state
    delta.partition_changed(owner.topic_id, index)


REPLAY: Final[dict[type[Message], Callable[["MetadataImage", Any, MetadataDelta], None]]] = {
    TopicRecord: topic,
    RemoveTopicRecord: remove_topic,
    PartitionRecord: partition,
    PartitionChangeRecord: partition_change,
    ClearElrRecord: clear_elr,
    ConfigRecord: config,
    RegisterBrokerRecord: register_broker,
    UnregisterBrokerRecord: unregister_broker,
    FenceBrokerRecord: fence_broker,
    UnfenceBrokerRecord: unfence_broker,
    BrokerRegistrationChangeRecord: broker_registration_change,
    RegisterControllerRecord: register_controller,
    FeatureLevelRecord: feature_level,
    ProducerIdsRecord: producer_ids,
    ClientQuotaRecord: client_quota,
    AccessControlEntryRecord: access_control_entry,
    RemoveAccessControlEntryRecord: remove_access_control_entry,
    UserScramCredentialRecord: user_scram_credential,
    RemoveUserScramCredentialRecord: remove_user_scram_credential,
    DelegationTokenRecord: delegation_token,
    RemoveDelegationTokenRecord: remove_delegation_token,
    ZkMigrationStateRecord: zk_migration_state,
    NoOpRecord: no_op,
}
