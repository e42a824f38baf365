"""The administrator: everything that a cluster can be asked and told besides records.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", partitions=3)])
        print(await admin.list_topics())

Works on Lograft and on Apache Kafka 3.0 and later; what only Lograft can do says so and is refused
by others with `UnsupportedByBroker` or by their error codes.
"""

from lograft.client.administering.cluster import (
    BrokerDescription,
    ClusterDescription,
    ClusterPart,
    FeatureLevels,
    Features,
    QuorumDescription,
    QuorumReplica,
    UpgradeKind,
)
from lograft.client.administering.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigsPart,
    ConfigSynonym,
    ConfigType,
    Operation,
    ResourceKind,
    broker_resource,
    group_resource,
    topic_resource,
)
from lograft.client.administering.group_offsets import GroupOffset
from lograft.client.administering.group_resets import (
    GroupResetsPart,
    OffsetMove,
    ResetPlan,
    Scope,
    Target,
)
from lograft.client.administering.groups import (
    GroupDescription,
    GroupListing,
    MemberDescription,
)
from lograft.client.administering.log_dirs import (
    DirectoryReplica,
    LogDirectory,
    LogDirsPart,
    TopicPartitionReplica,
)
from lograft.client.administering.partitions import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ActiveProducer,
    Election,
    ListedOffset,
    Reassignment,
)
from lograft.client.administering.retention_holds import RetentionHold, RetentionHoldsPart
from lograft.client.administering.settings import AdminSettings
from lograft.client.administering.topic_descriptions import (
    PartitionDescription,
    ReplicaState,
    TopicDescription,
    TopicDescriptionsPart,
    TopicListing,
)
from lograft.client.administering.topic_groups import (
    PartitionReading,
    TopicGroup,
    TopicGroups,
    TopicGroupsPart,
)
from lograft.client.administering.topics import CreatedTopic, NewTopic, TopicsPart
from lograft.client.administering.transactions import (
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
    TransactionsPart,
)
from lograft.client.types import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "ActiveProducer",
    "Admin",
    "AdminSettings",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "DirectoryReplica",
    "Election",
    "FeatureLevels",
    "Features",
    "GroupDescription",
    "GroupListing",
    "GroupOffset",
    "HangingTransaction",
    "ListedOffset",
    "LogDirectory",
    "MemberDescription",
    "NewTopic",
    "OffsetMove",
    "Operation",
    "PartitionDescription",
    "PartitionReading",
    "QuorumDescription",
    "QuorumReplica",
    "Reassignment",
    "ReplicaState",
    "ResetPlan",
    "ResourceKind",
    "RetentionHold",
    "Scope",
    "Target",
    "TopicDescription",
    "TopicGroup",
    "TopicGroups",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeKind",
    "broker_resource",
    "group_resource",
    "topic_resource",
]


class Admin(
    TopicsPart,
    RetentionHoldsPart,
    TopicGroupsPart,
    TopicDescriptionsPart,
    ConfigsPart,
    ClusterPart,
    LogDirsPart,
    GroupResetsPart,
    TransactionsPart,
):
    """Belongs to the event loop in which it was opened. Settings are Kafka's, by their dotted names
    in a mapping or as keywords; `runtime` is for simulations.

    What is asked for several things together returns a mapping; when some of them fail,
    `SomeFailed` has what was done and what was not, and a single one raises its own error.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            print([topic.name for topic in await admin.list_topics()])
    """
