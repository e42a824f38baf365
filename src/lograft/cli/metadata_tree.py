"""The metadata image as a tree of folders and files, in the layout and format of Kafka's shell."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias, Union

from lograft import __version__
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import (
    METADATA_VERSION,
    BrokerState,
    ControllerState,
    Endpoint,
    LeaderRecovery,
    PartitionState,
    QuotaEntity,
    TopicState,
    VersionRange,
)
from lograft.model.feature_levels import METADATA_VERSIONS
from lograft.model.listeners import SecurityProtocol
from lograft.model.types import NO_EPOCH, ReplicationMode
from lograft.model.uuids import uuid_to_text
from lograft.security.acls import Acl
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord

#: A folder is a dict, a file is its text.
Folder: TypeAlias = dict[str, Union[str, "Folder"]]

CONFIG_TYPES: Final = {
    2: "TOPIC",
    4: "BROKER",
    8: "BROKER_LOGGER",
    16: "CLIENT_METRICS",
    32: "GROUP",
}
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
RESOURCE_TYPES: Final = (
    "UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER",
)  # fmt: skip
PATTERN_TYPES: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE",
    "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS",
    "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")


def metadata_tree(image: MetadataImage, *, time_ms: int) -> Folder:
    by_id: Folder = {}
    by_name: Folder = {}
    for topic in image.topics.values():
        by_id[uuid_to_text(topic.topic_id)] = by_name[topic.name] = _topic_folder(topic)
    return {
        "image": {
            "acls": {
                "byId": {uuid_to_text(key): _format_acl(acl) for key, acl in image.acls.items()}
            },
            "clientQuotas": {
                _entity_name(entity): {name: str(value) for name, value in quotas.items()}
                for entity, quotas in image.client_quotas.items()
            },
            "cluster": {
                "brokers": {
                    str(key): _format_broker(state) for key, state in image.brokers.items()
                },
                "controllers": {
                    str(key): _format_controller(state) for key, state in image.controllers.items()
                },
            },
            "configs": {
                _resource_name(resource.type, resource.name): dict(values)
                for resource, values in image.configs.items()
            },
            "delegationToken": {
                key: _format_token(token) for key, token in image.delegation_tokens.items()
            },
            "features": _features_folder(image),
            "producerIds": {"nextProducerId": str(image.producer_ids_next or -1)},
            "provenance": _format_provenance(image, time_ms),
            "scram": _scram_folder(image.scram.values()),
            "topics": {"byId": by_id, "byName": by_name},
        },
        "local": {"commitId": "lograft", "version": __version__},
    }


def _format_provenance(image: MetadataImage, time_ms: int) -> str:
    when = datetime.fromtimestamp(max(time_ms, 0) / 1000, UTC)
    text = when.strftime("%Y-%m-%dT%H:%M:%S")
    if milliseconds := max(time_ms, 0) % 1000:
        text += f".{milliseconds:03d}"
    return f"offset {image.offset}, epoch {image.epoch}, time {text}Z[UTC]"


def _features_folder(image: MetadataImage) -> Folder:
    levels = {name: level for name, level in image.features.items() if name != METADATA_VERSION}
    result: Folder = {f"finalized_{name}": str(level) for name, level in levels.items()}
    version = METADATA_VERSIONS.get(image.metadata_version)
    result["metadataVersion"] = f"Optional[{version}]" if version else "Optional.empty"
    return result


def _resource_name(kind: int, name: str) -> str:
    type_name = CONFIG_TYPES.get(kind, str(kind))
    return f"{type_name}:{name}" if name else type_name


def _entity_name(entity: Iterable[QuotaEntity]) -> str:
    """Formats an entity as `clientId(x)_user(bob)`; a default entity has an empty name."""
    by_type = {part.type: part.name or "" for part in entity}
    parts = []
    for kind, shown in (("ip", "ip"), ("client-id", "clientId"), ("user", "user")):
        if kind in by_type:
            name = by_type[kind]
            for special in "\\()":
                name = name.replace(special, f"\\{special}")
            parts.append(f"{shown}({name})")
    return "_".join(parts)


def _topic_folder(topic: TopicState) -> Folder:
    result: Folder = {
        str(key): _format_partition(partition) for key, partition in topic.partitions.items()
    }
    return result | {"id": uuid_to_text(topic.topic_id), "name": topic.name}


def _format_partition(partition: PartitionState) -> str:
    recovery = LeaderRecovery(partition.leader_recovery).name
    # A partition that has never been in raft mode is printed as in Kafka's shell.
    is_never_raft = partition.mode is ReplicationMode.ISR and partition.life == NO_EPOCH
    raft_fields = (
        ""
        if is_never_raft
        else f", replicationMode={partition.mode.name}, raftLife={partition.life}"
    )
    return (
        f"PartitionRegistration(replicas={_format_list(partition.replicas)},"
        f" directories={_format_list(map(uuid_to_text, partition.directories))},"
        f" isr={_format_list(partition.isr)},"
        f" removingReplicas={_format_list(partition.removing_replicas)},"
        f" addingReplicas={_format_list(partition.adding_replicas)},"
        f" elr={_format_list(partition.elr)},"
        f" lastKnownElr={_format_list(partition.last_known_elr)}, leader={partition.leader},"
        f" leaderRecoveryState={recovery}, leaderEpoch={partition.leader_epoch},"
        f" partitionEpoch={partition.partition_epoch}{raft_fields})"
    )


def _format_broker(broker: BrokerState) -> str:
    cordoned = "null"
    if broker.cordoned_log_dirs is not None:
        cordoned = _format_list(map(uuid_to_text, broker.cordoned_log_dirs))
    return (
        f"BrokerRegistration(id={broker.broker_id}, epoch={broker.epoch},"
        f" incarnationId={uuid_to_text(broker.incarnation_id)},"
        f" listeners={_format_list(map(_format_endpoint, broker.endpoints))},"
        f" supportedFeatures={_format_ranges(broker.features)},"
        f" rack={f'Optional[{broker.rack}]' if broker.rack is not None else 'Optional.empty'},"
        f" fenced={_bool_text(broker.fenced)},"
        f" inControlledShutdown={_bool_text(broker.in_controlled_shutdown)},"
        f" isMigratingZkBroker={_bool_text(broker.is_migrating_zk_broker)},"
        f" directories={_format_list(map(uuid_to_text, broker.log_dirs))},"
        f" cordonedDirectories={cordoned})"
    )


def _format_controller(controller: ControllerState) -> str:
    return (
        f"ControllerRegistration(id={controller.controller_id},"
        f" incarnationId={uuid_to_text(controller.incarnation_id)},"
        f" zkMigrationReady={_bool_text(controller.zk_migration_ready)},"
        f" listeners={_format_list(map(_format_endpoint, controller.endpoints))},"
        f" supportedFeatures={_format_ranges(controller.features)})"
    )


def _format_endpoint(endpoint: Endpoint) -> str:
    protocol = SecurityProtocol(endpoint.security_protocol).name
    return (
        f"Endpoint(listenerName='{endpoint.name}', securityProtocol={protocol},"
        f" host='{endpoint.host}', port={endpoint.port})"
    )


def _format_ranges(features: Mapping[str, VersionRange]) -> str:
    shown = (
        f"{name}: {levels.min_version}-{levels.max_version}"
        for name, levels in sorted(features.items())
    )
    return f"{{{', '.join(shown)}}}"


def _scram_folder(users: Iterable[UserScramCredentialRecord]) -> Folder:
    result: dict[str, Folder] = {name: {} for name in SCRAM_MECHANISMS.values()}
    for user in users:
        mechanism = SCRAM_MECHANISMS.get(user.mechanism, str(user.mechanism))
        result.setdefault(mechanism, {})[user.name] = (
            f"ScramCredentialData(salt={user.salt.hex()}, storedKey={user.stored_key.hex()},"
            f" serverKey={user.server_key.hex()}, iterations={user.iterations})"
        )
    return dict(result)


def _format_acl(acl: Acl) -> str:
    return (
        f"StandardAcl[resourceType={_name_of(RESOURCE_TYPES, acl.resource_type)},"
        f" resourceName={acl.name},"
        f" patternType={_name_of(PATTERN_TYPES, acl.pattern_type)}, principal={acl.principal},"
        f" host={acl.host}, operation={_name_of(OPERATIONS, acl.operation)},"
        f" permissionType={_name_of(PERMISSIONS, acl.permission)}]"
    )


def _format_token(token: DelegationTokenRecord) -> str:
    return (
        f"TokenInformation(owner={token.owner}, requester={token.requester},"
        f" renewers={_format_list(token.renewers)}, issueTimestamp={token.issue_timestamp},"
        f" maxTimestamp={token.max_timestamp}, expirationTimestamp={token.expiration_timestamp},"
        f" tokenId={token.token_id})"
    )


def _name_of(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


def _format_list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _bool_text(value: bool) -> str:
    return "true" if value else "false"
