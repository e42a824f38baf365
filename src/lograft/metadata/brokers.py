"""Decides registrations, heartbeats, fencing and removal of brokers; registers controllers."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from lograft.metadata.broker_partitions import (
    handle_arrival,
    handle_departure,
    handle_directory_failure,
    handle_loss,
    leads_controller_elected_partition,
)
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import (
    METADATA_VERSION,
    BrokerState,
    ControllerResult,
    is_reserved_directory,
)
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.wire.message import Message
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from lograft.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from lograft.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from lograft.wire.records.broker_registration_change_record import BrokerRegistrationChangeRecord
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
from lograft.wire.records.unregister_broker_record import UnregisterBrokerRecord

#: The metadata.version since which registrations contain cordoned log directories.
CORDONED_LOG_DIRS_SINCE: Final = 30
#: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.
SECURITY_PROTOCOLS: Final = 4


def register_broker(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    config: BrokerConfig,
    is_predecessor_alive: bool = False,
) -> ControllerResult[BrokerRegistrationResponse]:
    """`is_predecessor_alive`: whether the currently registered broker with this id recently sent a
    heartbeat.

    A new incarnation starts fenced and leads no partition. Its unflushed records may be lost unless
    it names the previous registration, which it remembers only after closing its logs; otherwise
    its replicas are no longer in sync or eligible.
    """
    _check_registration(image, request, cluster_id=cluster_id)
    before = image.brokers.get(request.broker_id)
    is_same = before is not None and before.incarnation_id == request.incarnation_id
    if before is not None and not is_same and is_predecessor_alive:
        raise Rejected(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"A broker with id {request.broker_id} is already running. Configure another node.id"
            " for this broker.",
        )
    records: list[Message] = []
    if before is not None and not is_same:
        is_clean = request.previous_broker_epoch == before.epoch
        records += (handle_departure if is_clean else handle_loss)(image, request.broker_id, config)
    # The broker epoch is the offset of the registration record. It comes last: if the record were
    # appended without some of the others, nothing would ever append those.
    new_epoch = image.offset + len(records) + 1
    epoch = before.epoch if before is not None and is_same else new_epoch
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(
                name=end.name, host=end.host, port=end.port, security_protocol=end.security_protocol
            )
            for end in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=list(request.log_dirs),
    )
    if before is not None and is_same:
        # A repeated request: its first response was lost, or the request was delayed.
        record.fenced = before.fenced
        record.in_controlled_shutdown = before.in_controlled_shutdown
    records.append(record)
    return ControllerResult(
        tuple(records), BrokerRegistrationResponse(broker_epoch=epoch), atomic=False
    )


def heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    *,
    config: BrokerConfig,
    fenced_at: int = 0,
) -> ControllerResult[BrokerHeartbeatResponse]:
    """Handles one heartbeat: unfences the broker, or continues its controlled shutdown.

    A fenced broker is unfenced once it has replayed its own registration and, in addition to
    Kafka's rule, the log up to `fenced_at`. Until then it may still act as the leader of partitions
    that have other leaders now.
    """
    broker = _require_registration(image, request.broker_id, request.broker_epoch)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    records: list[Message] = []
    cordoned = request.cordoned_log_dirs
    if cordoned is not None and image.metadata_version >= CORDONED_LOG_DIRS_SINCE:
        records += _cordon(broker, cordoned)
    fenced, may_shut_down = broker.fenced, False
    offline = [d for d in request.offline_log_dirs if d in broker.log_dirs]
    has_disk = len(offline) < len(broker.log_dirs) or not broker.log_dirs
    if offline and has_disk:
        # Everything else waits for the next heartbeat: a decision changes a partition only once.
        records += _lose_directories(image, broker, offline, config)
    elif request.want_shut_down:
        if fenced or not leads_controller_elected_partition(image, broker.broker_id):
            may_shut_down = True
            if not fenced:
                records += _fence(image, broker, config)
                fenced = True
        elif not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.epoch,
                    in_controlled_shutdown=1,
                )
            )
            records += handle_departure(image, broker.broker_id, config)
    elif request.want_fence or not has_disk:
        if not fenced:
            records += _fence(image, broker, config)
            fenced = True
    elif (
        fenced
        and is_caught_up
        and request.current_metadata_offset >= fenced_at
        and not offline
        and not broker.in_controlled_shutdown
    ):
        # (A broker in controlled shutdown comes back by registering again.)
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=-1
            )
        )
        records += handle_arrival(image, broker.broker_id, config)
        fenced = False
    reply = BrokerHeartbeatResponse(
        is_caught_up=is_caught_up, is_fenced=fenced, should_shut_down=may_shut_down
    )
    return ControllerResult(tuple(records), reply, atomic=False)


def _cordon(broker: BrokerState, cordoned: list[UUID]) -> Iterator[Message]:
    if set(cordoned) != set(broker.cordoned_log_dirs or ()):
        yield BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=cordoned
        )


def fence_broker(
    image: MetadataImage, broker_id: int, *, config: BrokerConfig
) -> ControllerResult[None]:
    """Fences a broker that has not sent a heartbeat in time."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return ControllerResult((), None)
    return ControllerResult(tuple(_fence(image, broker, config)), None, atomic=False)


def unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, *, config: BrokerConfig
) -> ControllerResult[UnregisterBrokerResponse]:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise Rejected(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered."
        )
    records: list[Message] = [*handle_loss(image, request.broker_id, config)]
    records.append(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
    return ControllerResult(
        tuple(records), UnregisterBrokerResponse(error_message=None), atomic=False
    )


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=end.name, host=end.host, port=end.port, security_protocol=end.security_protocol
            )
            for end in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return ControllerResult((record,), ControllerRegistrationResponse(error_message=None))


def _check_registration(
    image: MetadataImage, request: BrokerRegistrationRequest, *, cluster_id: str
) -> None:
    if request.cluster_id != cluster_id:
        raise Rejected(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"The broker belongs to cluster {request.cluster_id}, not to {cluster_id}.",
        )
    if request.is_migrating_zk_broker:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            "This cluster does not support the migration from ZooKeeper. Restart"
            " the broker with process.roles set.",
        )
    for feature in request.features:
        level = image.features.get(feature.name, 0)
        # Features that this release does not support have no effect here at any level.
        if (
            feature.name == METADATA_VERSION
            and level
            and not (feature.min_supported_version <= level <= feature.max_supported_version)
        ):
            raise Rejected(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{feature.name} is finalized at level {level}, but broker {request.broker_id}"
                f" supports only levels {feature.min_supported_version} to"
                f" {feature.max_supported_version}.",
            )
    for what, names in (
        ("listeners", [listener.name for listener in request.listeners]),
        ("features", [feature.name for feature in request.features]),
    ):
        if len(set(names)) != len(names):
            raise Rejected(ErrorCode.INVALID_REQUEST, f"The names of {what} must be unique.")
    if any(
        not 0 <= listener.security_protocol < SECURITY_PROTOCOLS for listener in request.listeners
    ):
        raise Rejected(ErrorCode.INVALID_REQUEST, "A listener has an unknown security protocol.")
    if any(is_reserved_directory(directory) for directory in request.log_dirs):
        raise Rejected(ErrorCode.INVALID_REQUEST, "A log directory has a reserved directory id.")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise Rejected(ErrorCode.INVALID_REQUEST, "Log directories have the same directory id.")
    for other in image.brokers.values():
        shared = set(other.log_dirs) & set(request.log_dirs)
        if other.broker_id != request.broker_id and shared:
            raise Rejected(
                ErrorCode.INVALID_REGISTRATION,
                f"Directory id {min(shared)} is already registered by broker {other.broker_id}. A"
                " log directory was probably copied with its meta.properties.",
            )


def _require_registration(image: MetadataImage, broker_id: int, epoch: int) -> BrokerState:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Rejected(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if broker.epoch != epoch:
        raise Rejected(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}.",
        )
    return broker


def _fence(image: MetadataImage, broker: BrokerState, config: BrokerConfig) -> Iterator[Message]:
    yield from handle_departure(image, broker.broker_id, config)
    yield BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=1
    )


def _lose_directories(
    image: MetadataImage, broker: BrokerState, offline: list[UUID], config: BrokerConfig
) -> Iterator[Message]:
    yield from handle_directory_failure(image, broker.broker_id, offline, config)
    yield BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        log_dirs=[directory for directory in broker.log_dirs if directory not in offline],
    )
