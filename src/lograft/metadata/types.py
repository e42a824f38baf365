"""The values a metadata image is made of. All are immutable: an image shares them freely."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from lograft.model.types import NO_EPOCH, ZERO_UUID, BrokerEpoch, ReplicationMode
from lograft.wire.message import Message

R_co = TypeVar("R_co", covariant=True)

#: Directory ids with a meaning of their own (KIP-858).
UNASSIGNED_DIRECTORY: Final = ZERO_UUID
LOST_DIRECTORY: Final = UUID(int=1)
#: Ids below are reserved: unassigned, lost, migrating.
RESERVED_DIRECTORIES: Final = 100

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
#: Lograft's own. Level 1: partitions may be in raft mode, so every node must understand that.
REPLICATION_VERSION: Final = "lograft.replication.version"
#: From level 1 on ISRs may become empty, and the log says who else may lead (KIP-966).
ELR_VERSION: Final = "eligible.leader.replicas.version"
#: Level 1: consumer groups (KIP-848).
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"

#: Topic setting: up to how many partitions the topic grows when a producer writes beyond its last.
#: Topics that are created automatically may get it from the broker's settings.
ON_DEMAND_MAX: Final = "auto.create.partitions.max"
#: Topic settings: which groups may read it, and which one where it is one (metadata/claims.py).
SUBSCRIPTION_MODE: Final = "subscription.mode"
SUBSCRIPTION_GROUP: Final = "subscription.group"
POINT_TO_POINT: Final = "ptp"

#: Far below what a batch of the metadata log holds.
RECORDS_PER_BATCH: Final = 10_000


def is_reserved_directory(directory: UUID) -> bool:
    return directory.int < RESERVED_DIRECTORIES


class ResourceType(IntEnum):
    """Whose settings; the numbers are the wire's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: int
    #: Of a broker: its id, or "" for the default of all brokers.
    name: str


class LeaderRecovery(IntEnum):
    """Whether the leader came from the in-sync replicas or may have lost records."""

    RECOVERED = 0
    RECOVERING = 1


class PartitionState(NamedTuple):
    replicas: tuple[int, ...]
    #: Where each replica lies, in the order of `replicas`.
    directories: tuple[UUID, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    #: Replicas outside the ISR that still hold all committed records (KIP-966).
    elr: tuple[int, ...]
    #: The leader of the moment when the ISR became empty, or ().
    last_known_elr: tuple[int, ...]
    #: -1: nobody leads.
    leader: int
    leader_recovery: int
    #: Grows by one with every new leader.
    leader_epoch: int
    #: Grows by one with every change at all.
    partition_epoch: int
    mode: ReplicationMode = ReplicationMode.ISR
    #: The epoch that names the newest raft life; NO_EPOCH: there was none. Never falls.
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
    #: Not (yet) trusted with partitions: registered but not caught up, or silent for too long.
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    #: None: the broker comes from before there were cordoned log dirs.
    cordoned_log_dirs: tuple[UUID, ...] | None
    is_migrating_zk_broker: bool

    @property
    def is_active(self) -> bool:
        """May lead partitions and be in their ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((end for end in self.endpoints if end.name == listener), None)

    def serves(self, directory: UUID) -> bool:
        """Whether a replica in that directory can be reached, as far as the directory goes."""
        if directory in self.log_dirs:
            return True
        if is_reserved_directory(directory):
            return directory != LOST_DIRECTORY
        return not self.log_dirs  # a broker from before there were ids

    @property
    def takes_replicas(self) -> bool:
        """Whether new replicas may be placed on it: not where all its log dirs are cordoned
        (KIP-1066)."""
        if not self.log_dirs or self.cordoned_log_dirs is None:
            return True
        return any(directory not in self.cordoned_log_dirs for directory in self.log_dirs)

    @property
    def default_directory(self) -> UUID:
        """Where a new replica on this broker goes, as far as the controller can know."""
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


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R_co]):
    """What a decision wants: `records` appended, then `reply` given."""

    records: tuple[Message, ...]
    reply: R_co
    #: All in one batch, so that a crash leaves all of them or none. Otherwise in as many as it
    #: takes, in this order: then the decision, made again on what is left, writes the rest.
    atomic: bool = True

    def batches(self) -> Iterator[tuple[Message, ...]]:
        records = self.records
        if self.atomic or len(records) <= RECORDS_PER_BATCH:
            if records:
                yield records
            return
        for start in range(0, len(records), RECORDS_PER_BATCH):
            yield records[start : start + RECORDS_PER_BATCH]
