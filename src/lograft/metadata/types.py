"""The values of a metadata image. All are immutable, so that images can share them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from lograft.model.types import NO_EPOCH, ZERO_UUID, BrokerEpoch, ReplicationMode
from lograft.wire.message import Message

R_co = TypeVar("R_co", covariant=True)
#: Called with the number of partitions that a decision is about to create or delete for a client;
#: raises Rejected if the client has exceeded its quota.
Admit = Callable[[int], None]

#: Reserved directory ids (KIP-858).
UNASSIGNED_DIRECTORY: Final = ZERO_UUID
LOST_DIRECTORY: Final = UUID(int=1)
#: Ids below this value are reserved: unassigned, lost, migrating.
RESERVED_DIRECTORIES: Final = 100

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
#: Lograft's own feature. Level 1 allows partitions in raft mode, which every node must support.
REPLICATION_VERSION: Final = "lograft.replication.version"
#: Since level 1, ISRs may become empty and the log has the eligible leader replicas (KIP-966).
ELR_VERSION: Final = "eligible.leader.replicas.version"
#: Level 1: consumer groups (KIP-848).
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"

#: Topic config: maximum number of partitions that producers can create by writing beyond the last
#: one. Automatically created topics may get it from the broker's configs.
ON_DEMAND_MAX: Final = "auto.create.partitions.max"
#: Topic configs for topics that only one group may read (metadata/topic_claims.py).
SUBSCRIPTION_MODE: Final = "subscription.mode"
SUBSCRIPTION_GROUP: Final = "subscription.group"
POINT_TO_POINT: Final = "ptp"

#: Maximum number of records per batch, far below the maximum batch size of the metadata log.
RECORDS_PER_BATCH: Final = 10_000


def is_reserved_directory(directory: UUID) -> bool:
    return directory.int < RESERVED_DIRECTORIES


class ResourceType(IntEnum):
    """The kinds of config resources; the numbers are those of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: int
    #: For a broker: its id, or "" for the default of all brokers.
    name: str


class LeaderRecovery(IntEnum):
    """Whether the leader came from the in-sync replicas or may have lost records."""

    RECOVERED = 0
    RECOVERING = 1


class PartitionState(NamedTuple):
    replicas: tuple[int, ...]
    #: The log directory of each replica, in the order of `replicas`.
    directories: tuple[UUID, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    #: Replicas outside the ISR that still hold all committed records (KIP-966).
    elr: tuple[int, ...]
    #: The leader at the time when the ISR became empty, or ().
    last_known_elr: tuple[int, ...]
    #: -1 if there is no leader.
    leader: int
    leader_recovery: int
    #: Increases by one with every new leader.
    leader_epoch: int
    #: Increases by one with every change.
    partition_epoch: int
    mode: ReplicationMode = ReplicationMode.ISR
    #: The epoch that identifies the latest raft life; NO_EPOCH if there was none. It never
    #: decreases.
    life: int = NO_EPOCH


@dataclass(slots=True)
class TopicState:
    name: str
    topic_id: UUID
    partitions: dict[int, PartitionState]

    def copy(self) -> "TopicState":
        return TopicState(self.name, self.topic_id, self.partitions.copy())


class Endpoint(NamedTuple):
    #: Name of the listener.
    name: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    min_version: int
    max_version: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min_version <= level <= self.max_version


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    broker_id: int
    epoch: BrokerEpoch
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    rack: str | None
    #: Not (yet) allowed to host online partitions: not caught up, or its session has expired.
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    #: None for brokers that do not support cordoned log directories.
    cordoned_log_dirs: tuple[UUID, ...] | None
    is_migrating_zk_broker: bool

    @property
    def is_active(self) -> bool:
        """May lead partitions and be in their ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((end for end in self.endpoints if end.name == listener), None)

    def serves(self, directory: UUID) -> bool:
        """Whether the directory, and so a replica in it, is online."""
        if directory in self.log_dirs:
            return True
        if is_reserved_directory(directory):
            return directory != LOST_DIRECTORY
        return not self.log_dirs  # A broker without directory ids.

    @property
    def takes_replicas(self) -> bool:
        """Whether new replicas may be placed on it; False if all its log directories are cordoned
        (KIP-1066)."""
        if not self.log_dirs or self.cordoned_log_dirs is None:
            return True
        return any(directory not in self.cordoned_log_dirs for directory in self.log_dirs)

    @property
    def default_directory(self) -> UUID:
        """The directory of a new replica on this broker, as far as the controller knows it."""
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED_DIRECTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    controller_id: int
    incarnation_id: UUID
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]


class QuotaEntity(NamedTuple):
    #: "user", "client-id" or "ip".
    type: str
    #: None: the default of this type.
    name: str | None


def admit_all(partitions: int) -> None:
    """An `Admit` without a quota."""


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R_co]):
    """The result of a decision: `records` to append, then `reply` to send."""

    records: tuple[Message, ...]
    reply: R_co
    #: Whether to append all records in one batch, so that a crash leaves all of them or none.
    #: Otherwise they are split in order; after a crash, a new decision writes the remainder.
    atomic: bool = True

    def batches(self) -> Iterator[tuple[Message, ...]]:
        records = self.records
        if self.atomic or len(records) <= RECORDS_PER_BATCH:
            if records:
                yield records
            return
        for start in range(0, len(records), RECORDS_PER_BATCH):
            yield records[start : start + RECORDS_PER_BATCH]
