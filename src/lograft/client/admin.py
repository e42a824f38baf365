"""The admin client: all operations on a cluster besides reading and writing records.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", partitions=3)])
        print(await admin.list_topics())

Works with Lograft and with Apache Kafka 3.0 and later. Operations that only Lograft supports say
so; they raise `UnsupportedByBroker`, or the error code that another broker returns.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from lograft.client.administering import (
    acls as acl_requests,
)
from lograft.client.administering import (
    client_quotas,
    cluster,
    configs,
    delegation_tokens,
    group_offsets,
    group_resets,
    log_dirs,
    retention_holds,
    scram_users,
    topic_descriptions,
    topic_groups,
    transactions,
)
from lograft.client.administering import groups as group_requests
from lograft.client.administering import partitions as partition_requests
from lograft.client.administering import topics as topic_requests
from lograft.client.administering.client_quotas import QuotaEntity
from lograft.client.administering.cluster import (
    BrokerDescription,
    ClusterDescription,
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
    ConfigSynonym,
    ConfigType,
    Mode,
    Operation,
    ResourceKind,
    broker_resource,
    group_resource,
    topic_resource,
)
from lograft.client.administering.delegation_tokens import DelegationToken
from lograft.client.administering.group_offsets import GroupOffset
from lograft.client.administering.group_resets import (
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
    TopicPartitionReplica,
)
from lograft.client.administering.partitions import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ActiveProducer,
    Election,
    Isolation,
    ListedOffset,
    Reassignment,
)
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.administering.retention_holds import RetentionHold
from lograft.client.administering.scram_users import ScramDeletion, ScramUpsertion
from lograft.client.administering.settings import AdminSettings
from lograft.client.administering.topic_descriptions import (
    PartitionDescription,
    ReplicaState,
    TopicDescription,
    TopicListing,
)
from lograft.client.administering.topic_groups import (
    PartitionReading,
    TopicGroup,
    TopicGroups,
)
from lograft.client.administering.topics import CreatedTopic, NewTopic
from lograft.client.administering.transactions import (
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from lograft.client.async_resource import AsyncResource
from lograft.client.core import ClientCore
from lograft.client.errors import WrongUse
from lograft.client.metering.names import ClientMetrics
from lograft.client.types import TopicPartition
from lograft.model.seams import Address, Runtime
from lograft.security.acls import Acl, AclFilter
from lograft.security.authorization import Need
from lograft.security.standard_authorizer import Rule

if TYPE_CHECKING:
    from lograft.client.keywords import AdminKeywords

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
    "DelegationToken",
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
    "QuotaEntity",
    "Reassignment",
    "ReplicaState",
    "ResetPlan",
    "ResourceKind",
    "RetentionHold",
    "Scope",
    "ScramDeletion",
    "ScramUpsertion",
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


class Admin(AsyncResource):
    """Manages a cluster. Settings are Kafka's, in a mapping with dotted names or as keyword
    arguments; `runtime` is for simulations. It belongs to the event loop in which it was opened.

    Operations on several items return a mapping. If only some items fail, they raise `SomeFailed`,
    which contains the results and the errors; for a single item they raise its own error.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            print([topic.name for topic in await admin.list_topics()])
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        runtime: Runtime | None = None,
        **keywords: "Unpack[AdminKeywords]",
    ) -> None:
        self.settings = AdminSettings.read(settings or {}, **keywords)
        self._runtime = runtime
        self._core: ClientCore[AdminSettings] | None = None
        self._opened_driver: RequestDriver | None = None

    async def start(self) -> None:
        """Opens the admin client. Sends no requests yet."""
        if self._core is not None:
            raise WrongUse("the admin client has been started already")
        self._core = ClientCore(self.settings, runtime=self._runtime)
        # Every call requests the metadata that it needs, so no background updates.
        self._core.metadata.close()
        self._opened_driver = RequestDriver(self._core)

    async def connect(self) -> None:
        """Checks that one of the bootstrap servers can be reached. Raises ConnectionFailed
        immediately if none can; other calls retry.

            await admin.connect()
        """
        await self._driver.connect()

    async def probe(self, node: int | Address) -> None:
        """Checks that a node can be reached, a broker by its id at its advertised address. Raises
        ConnectionFailed immediately, whose `stage` says what failed, or BrokerMissing.

            await admin.probe(1)
        """
        await self._driver.probe(node)

    def metrics(self) -> ClientMetrics:
        """Returns the values of all metrics, by Kafka's names; see docs/client-metrics.md.

        print(admin.metrics().value("connection-count"))
        """
        if self._core is None:
            raise WrongUse("the admin client is not open: use `async with`, or await start()")
        return self._core.metrics.metrics()

    async def close(self) -> None:
        if self._core is not None:
            await self._core.close()

    def _describe_open(self) -> str | None:
        core = getattr(self, "_core", None)
        return None if core is None or core.is_closed else "admin client"

    @property
    def _driver(self) -> RequestDriver:
        if self._opened_driver is None:
            raise WrongUse("the admin client is not open: use `async with`, or await start()")
        return self._opened_driver

    # ── topics ───────────────────────────────────────────────────────────────────────────────

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Creates topics.

        created = await admin.create_topics([NewTopic("payments", partitions=3), "refunds"])
        print(created["payments"].id)
        """
        return await topic_requests.create_topics(self._driver, topics, validate_only=validate_only)

    async def delete_topics(self, topics: Iterable[str | UUID]) -> None:
        """Deletes topics with their records, by name or id.

        await admin.delete_topics(["old"])
        """
        await topic_requests.delete_topics(self._driver, topics)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Adds partitions to topics. `counts`: the new total; `assignments`: the brokers of each
        new partition.

        await admin.create_partitions({"orders": 6})
        """
        await topic_requests.create_partitions(
            self._driver, counts, assignments=assignments, validate_only=validate_only
        )

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """Returns all topics, sorted by name; `internal`: also internal ones.

        print([topic.name for topic in await admin.list_topics()])
        """
        return await topic_descriptions.list_topics(self._driver, internal=internal)

    async def describe_topics(
        self, topics: Iterable[str | UUID] | None = None, *, replicas: bool = False
    ) -> dict[str, TopicDescription]:
        """Describes topics by name; None: all topics. `replicas`: also requests the state of every
        replica from its leader, which only Lograft brokers return.

        described = await admin.describe_topics(["orders"], replicas=True)
        for partition in described["orders"].partitions:
            print(partition.leader, partition.mode.name, [state.lag for state in partition.states])
        """
        return await topic_descriptions.describe_topics(self._driver, topics, replicas=replicas)

    # ── partitions ───────────────────────────────────────────────────────────────────────────

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        """Returns the first offset at or after a timestamp, or at EARLIEST, LATEST, MAX_TIMESTAMP.

        partition = TopicPartition("orders", 0)
        print((await admin.list_offsets({partition: LATEST}))[partition].offset)
        print(await admin.list_offsets({partition: EARLIEST}))
        print(await admin.list_offsets({partition: MAX_TIMESTAMP}))
        """
        return await partition_requests.list_offsets(self._driver, partitions, isolation=isolation)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Deletes records before an offset (-1: up to the high watermark). Returns the new log
        start offsets.

        await admin.delete_records({TopicPartition("orders", 0): -1})
        """
        return await partition_requests.delete_records(self._driver, before)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Returns the producers whose state each partition keeps.

        print(await admin.describe_producers([TopicPartition("orders", 0)]))
        """
        return await partition_requests.describe_producers(self._driver, partitions)

    # ── leaders and replicas ─────────────────────────────────────────────────────────────────

    async def elect_leaders(
        self,
        election: Election = Election.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        leader: int | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elects leaders; None: of all partitions that need it. Returns False for partitions that
        had the right leader already.

        `leader`: the broker that should lead the partitions, in either replication mode. It must be
        a live replica that is in sync. Only Lograft brokers support it. With
        `auto.leader.rebalance.enable` the preferred replica becomes leader again later; to change
        the leader permanently, change the order of the replicas (`reassign`).

        await admin.elect_leaders(Election.PREFERRED, [TopicPartition("orders", 0)])
        """
        return await partition_requests.elect_leaders(
            self._driver, election, partitions, leader=leader
        )

    async def reassign(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Starts to reassign partitions to these brokers, the preferred leader first; None cancels
        a reassignment.

        await admin.reassign({TopicPartition("orders", 0): [1]})
        """
        await partition_requests.reassign(self._driver, replicas)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Returns the reassignments in progress.

        print(await admin.list_reassignments())
        """
        return await partition_requests.list_reassignments(self._driver, partitions)

    # ── settings ─────────────────────────────────────────────────────────────────────────────

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Collection[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Returns all settings of the resources by name, or those in `names`.

        found = await admin.describe_configs([topic_resource("orders")])
        print(found[topic_resource("orders")]["retention.ms"].value)
        """
        return await configs.describe_configs(
            self._driver, resources, names=names, synonyms=synonyms, documentation=documentation
        )

    async def describe_skipped_configs(
        self, brokers: Iterable[int], *, controllers: Mapping[int, Address] | None = None
    ) -> dict[int, tuple[str, ...]]:
        """Returns dynamic settings that are stored for a node or for all nodes but that the node
        cannot apply, each with the reason. Only Lograft nodes report them. `controllers` are
        requested at the addresses of their controller listeners.

        print((await admin.describe_skipped_configs([1]))[1])
        """
        return await configs.describe_skipped_configs(self._driver, brokers, controllers or {})

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Changes the given settings, and no others.

        change = ConfigChange("retention.ms", "3600000")
        await admin.alter_configs({topic_resource("orders"): [change]})
        """
        await configs.alter_configs(self._driver, changes, validate_only=validate_only)

    async def list_config_resources(
        self, kinds: Iterable[ResourceKind] = ()
    ) -> list[ConfigResource]:
        """Returns the resources that have settings.

        print(await admin.list_config_resources([ResourceKind.TOPIC]))
        """
        return await configs.list_config_resources(self._driver, kinds)

    async def alter_replication(
        self,
        topic: str,
        *,
        mode: Mode | None = None,
        replicas: int | None = None,
        partitions: Collection[int] = (),
    ) -> None:
        """Changes the replication mode (Kafka's ISR or Raft) and the replication factor of a topic
        online, in one record batch of the metadata log. Only Lograft supports it. `partitions`:
        only these; the mode of a whole topic overrides that of single partitions.
        `describe_topics` shows the progress.

        await admin.alter_replication("orders", mode="raft")
        await admin.alter_replication("orders", mode="isr", partitions=[0])
        """
        await configs.alter_replication(
            self._driver, topic, mode=mode, replicas=replicas, partitions=partitions
        )

    # ── the cluster ──────────────────────────────────────────────────────────────────────────

    async def describe_cluster(self, *, fenced: bool = False) -> ClusterDescription:
        """Returns the brokers of the cluster; `fenced`: also those that are registered but fenced.
        With bootstrap.controllers, `brokers` contains the controllers.

        print((await admin.describe_cluster()).brokers)
        """
        return await cluster.describe_cluster(self._driver, fenced=fenced)

    async def describe_features(self) -> Features:
        """Returns the supported and finalized levels of features.

        print((await admin.describe_features()).finalized["metadata.version"].highest)
        """
        return await cluster.describe_features(self._driver)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        kind: UpgradeKind = UpgradeKind.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Changes the finalized levels of features, all or none; level 0 removes a feature.

        finalized = (await admin.describe_features()).finalized
        levels = {"group.version": finalized["group.version"].highest}
        await admin.update_features(levels, validate_only=True)
        """
        await cluster.update_features(self._driver, levels, kind=kind, validate_only=validate_only)

    async def unregister_broker(self, broker: int) -> None:
        """Unregisters a broker that is removed permanently. Its replicas stay assigned to it:
        reassign them first.

            # To remove broker 7, first use `lograft reassign`, then
            # await admin.unregister_broker(7)
        """
        await cluster.unregister_broker(self._driver, broker)

    # ── the quorum ───────────────────────────────────────────────────────────────────────────

    async def describe_quorum(self) -> QuorumDescription:
        """Returns the voters and observers, the leader, and the log end offset of each.

        quorum = await admin.describe_quorum()
        print(quorum.leader, [voter.node for voter in quorum.voters])
        """
        return await cluster.describe_quorum(self._driver)

    async def add_voter(self, node: int, directory: UUID, listeners: Mapping[str, Address]) -> None:
        """Adds a controller that is an observer of the quorum as a voter (KIP-853).

        # await admin.add_voter(4, directory_id, {"CONTROLLER": Address("host4", 9093)})
        """
        await cluster.add_voter(self._driver, node, directory, listeners)

    async def remove_voter(self, node: int, directory: UUID) -> None:
        """Removes a controller from the voters; it becomes an observer.

        # await admin.remove_voter(4, directory_id)
        """
        await cluster.remove_voter(self._driver, node, directory)

    # ── log directories ──────────────────────────────────────────────────────────────────────

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[int, list[LogDirectory]]:
        """Returns the log dirs of each broker, and their replicas.

        for broker, directories in (await admin.describe_log_dirs()).items():
            print(broker, [(log_dir.path, log_dir.usable_bytes) for log_dir in directories])
        """
        return await log_dirs.describe_log_dirs(self._driver, brokers, partitions=partitions)

    async def alter_replica_log_dirs(
        self, directories: Mapping[TopicPartitionReplica, str]
    ) -> None:
        """Starts to move replicas to other log dirs of their brokers; `describe_log_dirs` shows the
        future replicas (`is_future`). For a replica that the broker does not have yet it fails with
        REPLICA_NOT_AVAILABLE, and the broker will create the replica in this log dir.

        (directory,) = (await admin.describe_log_dirs([1]))[1]
        replica = TopicPartitionReplica("orders", 0, broker=1)
        await admin.alter_replica_log_dirs({replica: directory.path})
        """
        await log_dirs.alter_replica_log_dirs(self._driver, directories)

    # ── groups ───────────────────────────────────────────────────────────────────────────────

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Returns all groups sorted by id, or those in these states and of these types.

        print([group.group for group in await admin.list_groups(states=["Empty"])])
        """
        return await group_requests.list_groups(self._driver, states=states, types=types)

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """Returns the members of groups and their assignments, for both protocols. An unknown group
        has the state Dead. For share and streams groups, only the type and the state are returned.

        group = (await admin.describe_groups(["billing"]))["billing"]
        print(group.state, [member.client for member in group.members])
        """
        return await group_requests.describe_groups(self._driver, groups)

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Deletes groups without members, with their committed offsets.

        await admin.delete_groups(["billing"])
        """
        await group_requests.delete_groups(self._driver, groups)

    async def remove_members(
        self, group: str, instances: Collection[str] | None = None, *, reason: str = ""
    ) -> None:
        """Removes members from a classic group: static ones by group.instance.id; None: all.

        await admin.remove_members("billing")
        """
        await group_requests.remove_members(self._driver, group, instances, reason=reason)

    # ── committed offsets ────────────────────────────────────────────────────────────────────

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """Returns the committed offsets of a group, of all partitions or of these.

        print(await admin.list_group_offsets("billing"))
        """
        return await group_offsets.list_group_offsets(self._driver, group, partitions)

    async def list_offsets_of_groups(
        self, groups: Iterable[str], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[str, dict[TopicPartition, GroupOffset]]:
        """Returns the committed offsets of several groups, with one request to each coordinator.

        print(await admin.list_offsets_of_groups(["billing", "audit"]))
        """
        return await group_offsets.list_offsets_of_groups(self._driver, groups, partitions)

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | GroupOffset]
    ) -> None:
        """Sets offsets of a group without members, as in Kafka. For a group with members use
        `reset_offsets`.

        await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
        """
        await group_offsets.alter_group_offsets(self._driver, group, offsets)

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes committed offsets of a group for topics that it does not subscribe to.

        await admin.delete_group_offsets("billing", [TopicPartition("orders", 0)])
        """
        await group_offsets.delete_group_offsets(self._driver, group, partitions)

    # ── resets ───────────────────────────────────────────────────────────────────────────────

    async def plan_reset(self, group: str, target: Target, scope: Scope | None = None) -> ResetPlan:
        """Returns what `reset_offsets` would do. Without a scope: for all partitions that the group
        has committed or is assigned.

        scope: Scope = {"orders": {0, 1}}
        plan = await admin.plan_reset("billing", Target(earliest=True), scope)
        print(plan.moves)
        """
        return await group_resets.plan_reset(self._driver, group, target, scope)

    async def plan_undo(self, group: str, scope: Scope | None = None) -> ResetPlan:
        """Returns what `undo_reset` would do: for partitions in the scope that the last reset
        changed.

        # plan = await admin.plan_undo("billing")
        """
        return await group_resets.plan_undo(self._driver, group, scope)

    async def reset_offsets(
        self, group: str, target: Target, scope: Scope | None = None
    ) -> ResetPlan:
        """Resets a group's offsets while its consumers run: they are removed from the group, rejoin
        and start at the new offsets. Changes all offsets or none. Only Lograft supports it; Apache
        Kafka rejects it.

        await admin.reset_offsets("billing", Target(earliest=True), {"orders": None})
        """
        return await group_resets.reset_offsets(self._driver, group, target, scope)

    async def undo_reset(self, group: str, scope: Scope | None = None) -> ResetPlan:
        """Undoes the last reset, while the group's consumers run.

        await admin.reset_offsets("billing", Target(latest=True), {"orders": None})
        await admin.undo_reset("billing")
        """
        return await group_resets.undo_reset(self._driver, group, scope)

    async def execute_reset(self, plan: ResetPlan) -> None:
        """Executes a plan atomically.

        # await admin.execute_reset(await admin.plan_undo("billing"))
        """
        await group_resets.execute_reset(self._driver, plan)

    # ── groups and topics ────────────────────────────────────────────────────────────────────

    async def list_topic_groups(self, topics: Iterable[str]) -> dict[str, TopicGroups]:
        """Returns the groups that read each topic, by name.

        readers = (await admin.list_topic_groups(["orders"]))["orders"]
        print(readers.mode, {group.group: group.lag for group in readers.groups})
        """
        return await topic_groups.list_topic_groups(self._driver, topics)

    async def list_retention_holds(
        self, topics: Iterable[str] | None = None, *, now_ms: int
    ) -> list[RetentionHold]:
        """Returns the retention holds in effect at `now_ms` (wall clock), for these topics or all.
        Only Lograft has them; for other clusters the list is empty.

        for hold in await admin.list_retention_holds(now_ms=1_800_000_000_000):
            print(hold.group, hold.offset, hold.records_kept)
        """
        return await retention_holds.list_retention_holds(self._driver, topics, now_ms=now_ms)

    # ── ACLs ─────────────────────────────────────────────────────────────────────────────────

    async def list_acls(self, selected: AclFilter | None = None) -> list[Acl]:
        """Returns the ACLs that a filter selects, by default all."""
        return await acl_requests.list_acls(self._driver, selected or AclFilter())

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Creates ACLs; those that exist stay as they are."""
        await acl_requests.create_acls(self._driver, acls)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Deletes the ACLs that any of the filters selects, and returns them."""
        return await acl_requests.delete_acls(self._driver, filters)

    async def explain_access(self, principal: str, need: Need, *, host: str = "127.0.0.1") -> Rule:
        """Returns the rule that decides whether a principal ("User:alice") at a host may perform an
        operation. Brokers do not return super.users and allow.everyone.if.no.acl.found: the result
        is that of a principal that is no super user, without that setting."""
        return await acl_requests.explain_access(self._driver, principal, need, host)

    # ── transactions ─────────────────────────────────────────────────────────────────────────

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """Returns the SCRAM users, or those of the given ones that exist: the number of iterations
        of each mechanism for which a user has a password.

        for user, mechanisms in (await admin.describe_user_scram_credentials()).items():
            print(user, mechanisms)
        """
        return await scram_users.describe_user_scram_credentials(self._driver, users)

    async def alter_user_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion]
    ) -> None:
        """Creates SCRAM users, replaces their passwords, and removes them. A change applies to the
        next login. The passwords are not sent, only credentials derived from them.

        change = ScramUpsertion("alice", "correct horse battery staple")
        await admin.alter_user_scram_credentials([change])
        """
        await scram_users.alter_user_scram_credentials(self._driver, list(changes))

    # ── client quotas ────────────────────────────────────────────────────────────────────────

    async def describe_client_quotas(
        self, entity: QuotaEntity | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns all quotas, or those of exactly this entity.

        for entity, values in (await admin.describe_client_quotas()).items():
            print(entity, values.get("producer_byte_rate"))
        """
        return await client_quotas.describe_client_quotas(self._driver, entity)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets quotas, or removes those whose value is None; the others keep their values.

        entity = QuotaEntity(user="alice", client_id="reports")
        await admin.alter_client_quotas({entity: {"consumer_byte_rate": 10_000_000}})
        await admin.alter_client_quotas({entity: {"consumer_byte_rate": None}})
        """
        await client_quotas.alter_client_quotas(self._driver, changes, validate_only=validate_only)

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = delegation_tokens.DEFAULT_MS,
        owner: str | None = None,
    ) -> DelegationToken:
        """Creates a token with which others can log in as this client's user, or as `owner`. This
        client must have authenticated, and not with a token. `max_lifetime_ms`: -1 for the broker's
        maximum.

        try:
            token = await admin.create_delegation_token(renewers=["User:bob"])
            print(token.id, token.expires_ms)
        except ClientError as error:
            print("this client cannot create tokens:", error)
        """
        return await delegation_tokens.create_delegation_token(
            self._driver, renewers, max_lifetime_ms, owner
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, period_ms: int = delegation_tokens.DEFAULT_MS
    ) -> int:
        """Extends the validity of a token, up to its maximum, and returns when it ends.

        try:
            for token in await admin.describe_delegation_tokens():
                await admin.renew_delegation_token(token.hmac)
        except ClientError as error:
            print("only owners and renewers may renew a token:", error)
        """
        return await delegation_tokens.renew_delegation_token(self._driver, hmac, period_ms)

    async def expire_delegation_token(
        self, hmac: bytes, *, period_ms: int = delegation_tokens.DEFAULT_MS
    ) -> int:
        """Ends a token now, or after a period, and returns when it ends.

        try:
            for token in await admin.describe_delegation_tokens():
                await admin.expire_delegation_token(token.hmac)
        except ClientError as error:
            print("only owners and renewers may end a token:", error)
        """
        return await delegation_tokens.expire_delegation_token(self._driver, hmac, period_ms)

    async def describe_delegation_tokens(
        self, *, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """Returns the tokens that this client may see, or those that belong to the given owners.

        try:
            for token in await admin.describe_delegation_tokens(owners=["User:alice"]):
                print(token.id, token.expires_ms)
        except ClientError as error:
            print("this client cannot see tokens:", error)
        """
        return await delegation_tokens.describe_delegation_tokens(self._driver, owners)

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_for_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Returns all transactional ids, or those that match; `open_for_ms`: with a transaction
        that has been open for longer.

        print(await admin.list_transactions(states=["Ongoing"]))
        """
        return await transactions.list_transactions(
            self._driver,
            states=states,
            producer_ids=producer_ids,
            open_for_ms=open_for_ms,
            pattern=pattern,
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Returns the state of transactional ids and of their transactions.

        # print((await admin.describe_transactions(["payments"]))["payments"].partitions)
        """
        return await transactions.describe_transactions(self._driver, transactional_ids)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, int]:
        """Fences the producers with these transactional ids and aborts their open transactions.
        Returns the producer ids.

        await admin.fence_producers(["payments"])
        """
        return await transactions.fence_producers(self._driver, transactional_ids)

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, open_for_ms: int, now_ms: int
    ) -> list[HangingTransaction]:
        """Returns transactions that no coordinator will end and that have blocked readers of these
        partitions for longer than `open_for_ms` (at wall clock time `now_ms`).

            # hanging = await admin.find_hanging_transactions(
            #     partitions, open_for_ms=900_000, now_ms=…
            # )
        """
        return await transactions.find_hanging_transactions(
            self._driver, partitions, open_for_ms=open_for_ms, now_ms=now_ms
        )

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Writes an abort marker for a hanging transaction to one partition, so that readers skip
        its records and are no longer blocked.

            # for transaction in hanging:
            #     await admin.abort_transaction(transaction.partition, …)
        """
        await transactions.abort_transaction(
            self._driver,
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
