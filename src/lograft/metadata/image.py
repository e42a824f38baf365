"""The cluster's state after a prefix of the metadata log.

Only `replay` changes it. The dicts use the same keys as Kafka's records. The values of topics and
brokers are parsed, others are kept as records.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lograft.metadata.delta import MetadataDelta
from lograft.metadata.errors import InconsistentRecord
from lograft.metadata.replay import REPLAY
from lograft.metadata.types import (
    METADATA_VERSION,
    BrokerState,
    ConfigResource,
    ControllerState,
    PartitionState,
    QuotaEntity,
    TopicState,
)
from lograft.model.metrics import Gauge, Sample, enum_label
from lograft.model.types import NO_EPOCH, NO_OFFSET, Epoch, Offset, TopicIdPartition
from lograft.security.acls import Acl
from lograft.wire.message import Message
from lograft.wire.records.abort_transaction_record import AbortTransactionRecord
from lograft.wire.records.begin_transaction_record import BeginTransactionRecord
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from lograft.wire.records.end_transaction_record import EndTransactionRecord
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord

NO_CONFIGS: Final[dict[str, str]] = {}

METADATA_OFFSET: Final = Gauge(
    "lograft_metadata_offset", "Offset of the last metadata record that this node has applied."
)
METADATA_EPOCH: Final = Gauge(
    "lograft_metadata_epoch",
    "Controller epoch of the last metadata record applied by this node.",
)
BROKERS: Final = Gauge(
    "lograft_brokers",
    "Registered brokers of the cluster.",
    enum_label("state", ("active", "fenced")),
)
TOPICS: Final = Gauge("lograft_topics", "Topics of the cluster.")
CLUSTER_PARTITIONS: Final = Gauge(
    "lograft_cluster_partitions", "Partitions of all topics of the cluster."
)
LEADERLESS: Final = Gauge(
    "lograft_cluster_partitions_leaderless", "Partitions of the cluster without a leader."
)
NOT_PREFERRED: Final = Gauge(
    "lograft_cluster_partitions_not_preferred",
    "Partitions of the cluster that are led by another replica than the preferred one.",
)
REASSIGNING: Final = Gauge(
    "lograft_cluster_partitions_reassigning",
    "Partitions of the cluster whose replicas are being reassigned.",
)
SWITCHING: Final = Gauge(
    "lograft_cluster_partitions_switching_mode",
    "Partitions of the cluster that are changing between the replication modes.",
)
CONFIGS: Final = Gauge(
    "lograft_dynamic_configs", "Dynamic settings that are stored in the metadata."
)
ACLS: Final = Gauge("lograft_acls", "ACLs that are stored in the metadata.")
#: Topics whose partitions are added up between two samples.
TOPICS_AT_ONCE: Final = 10


@dataclass(slots=True)
class MetadataImage:
    #: The last record contained, and the epoch of the leader that wrote it.
    offset: Offset = NO_OFFSET
    epoch: Epoch = NO_EPOCH

    features: dict[str, int] = field(default_factory=dict)
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    controllers: dict[int, ControllerState] = field(default_factory=dict)
    topics: dict[UUID, TopicState] = field(default_factory=dict)
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    producer_ids_next: int = 0
    client_quotas: dict[tuple[QuotaEntity, ...], dict[str, float]] = field(default_factory=dict)
    acls: dict[UUID, Acl] = field(default_factory=dict)
    #: By mechanism and user.
    scram: dict[tuple[int, str], UserScramCredentialRecord] = field(default_factory=dict)
    delegation_tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict)
    zk_migration_state: int = 0

    # Derived from the fields above by replay, to avoid searches.

    topic_ids: dict[str, UUID] = field(default_factory=dict)
    #: Names that contain "." or "_", by the form in which the two are equal.
    similar_names: dict[str, dict[str, None]] = field(default_factory=dict)
    #: The number of partitions that each broker leads.
    leader_counts: dict[int, int] = field(default_factory=dict)
    #: By broker: the partitions of which it has a replica. (Dicts serve as ordered sets.)
    held_by: dict[int, dict[TopicIdPartition, None]] = field(default_factory=dict)
    #: Partitions without a leader, led by another replica than the preferred one, or in
    #: reassignment.
    leaderless: dict[TopicIdPartition, None] = field(default_factory=dict)
    not_preferred: dict[TopicIdPartition, None] = field(default_factory=dict)
    reassigning: dict[TopicIdPartition, None] = field(default_factory=dict)
    #: Switching between ISR and Raft.
    switching: dict[TopicIdPartition, None] = field(default_factory=dict)
    #: In raft mode or switching.
    not_isr: dict[TopicIdPartition, None] = field(default_factory=dict)
    #: The id of each ACL; if a log has an ACL more than once, one of its ids.
    acl_ids: dict[Acl, UUID] = field(default_factory=dict)
    #: By topic name: the only group that may read the topic, "" until a group has claimed it.
    claims: dict[str, str] = field(default_factory=dict)

    #: Records after a BeginTransactionRecord, held until the record that ends the transaction.
    _transaction: list[Message] | None = None

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def is_empty(self) -> bool:
        """Whether no record but control records was ever written."""
        return not self.features

    def topic(self, name: str) -> TopicState | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: UUID, index: int) -> PartitionState | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def offline_replicas(self, state: PartitionState, alive: Container[int]) -> list[int]:
        """Replicas on brokers that are not `alive` or in log directories that are offline."""
        brokers = self.brokers
        return [
            replica
            for replica, directory in zip(state.replicas, state.directories, strict=True)
            if replica not in alive or not brokers[replica].serves(directory)
        ]

    def config_of(self, resource_type: int, name: str) -> dict[str, str]:
        """The dynamic configs of this resource; the caller must not modify the result."""
        return self.configs.get(ConfigResource(resource_type, name), NO_CONFIGS)

    def replay(self, record: Message) -> None:
        self._replay(record, MetadataDelta())

    def apply(self, records: Iterable[Message], *, offset: Offset, epoch: Epoch) -> MetadataDelta:
        """Replays a batch whose last record has `offset`; returns the changes."""
        assert offset >= self.offset, (offset, self.offset)
        delta = MetadataDelta()
        for record in records:
            self._replay(record, delta)
        self.offset = offset
        self.epoch = epoch
        return delta

    def _replay(self, record: Message, delta: MetadataDelta) -> None:
        kind = type(record)
        if self._transaction is None:
            replay = REPLAY.get(kind)
            if replay is not None:
                replay(self, record, delta)
            elif kind is BeginTransactionRecord:
                self._transaction = []
            else:
                raise InconsistentRecord(f"unexpected {kind.__name__}: {record!r}")
        elif kind is EndTransactionRecord:
            records, self._transaction = self._transaction, None
            for held in records:
                self._replay(held, delta)
        elif kind is AbortTransactionRecord:
            self._transaction = None
        elif kind is BeginTransactionRecord:
            raise InconsistentRecord("nested metadata transaction")
        else:
            self._transaction.append(record)

    def records(self) -> Iterator[Message]:
        """Records that build this image when replayed on an empty one."""
        # Imported here because only nodes that write a snapshot need it.
        from lograft.metadata.image_records import image_records

        assert not self.in_transaction, "an image inside a transaction has no records"
        return image_records(self)

    def copy(self) -> "MetadataImage":
        """A copy that is independent of later records. Values are shared because they are
        immutable."""
        return MetadataImage(
            offset=self.offset,
            epoch=self.epoch,
            features=self.features.copy(),
            brokers=self.brokers.copy(),
            controllers=self.controllers.copy(),
            topics={topic_id: topic.copy() for topic_id, topic in self.topics.items()},
            configs={resource: values.copy() for resource, values in self.configs.items()},
            producer_ids_next=self.producer_ids_next,
            client_quotas={key: values.copy() for key, values in self.client_quotas.items()},
            acls=self.acls.copy(),
            scram=self.scram.copy(),
            delegation_tokens=self.delegation_tokens.copy(),
            zk_migration_state=self.zk_migration_state,
            topic_ids=self.topic_ids.copy(),
            similar_names={form: names.copy() for form, names in self.similar_names.items()},
            leader_counts=self.leader_counts.copy(),
            held_by={broker_id: held.copy() for broker_id, held in self.held_by.items()},
            leaderless=self.leaderless.copy(),
            not_preferred=self.not_preferred.copy(),
            reassigning=self.reassigning.copy(),
            switching=self.switching.copy(),
            not_isr=self.not_isr.copy(),
            claims=self.claims.copy(),
            acl_ids=self.acl_ids.copy(),
            _transaction=None if self._transaction is None else self._transaction.copy(),
        )

    def collect_samples(self) -> Iterator[Sample]:
        yield METADATA_OFFSET.sample(self.offset)
        yield METADATA_EPOCH.sample(self.epoch)
        for state in ("active", "fenced"):
            yield BROKERS.sample(0, state)
        for broker in list(self.brokers.values()):
            yield BROKERS.sample(1, "fenced" if broker.fenced else "active")
        yield TOPICS.sample(len(self.topics))
        topics = list(self.topics.values())
        for at in range(0, len(topics) + 1, TOPICS_AT_ONCE):
            counts = [len(topic.partitions) for topic in topics[at : at + TOPICS_AT_ONCE]]
            yield CLUSTER_PARTITIONS.sample(sum(counts))
        yield LEADERLESS.sample(len(self.leaderless))
        yield NOT_PREFERRED.sample(len(self.not_preferred))
        yield REASSIGNING.sample(len(self.reassigning))
        yield SWITCHING.sample(len(self.switching))
        yield CONFIGS.sample(0)
        for values in list(self.configs.values()):
            yield CONFIGS.sample(len(values))
        yield ACLS.sample(len(self.acls))
