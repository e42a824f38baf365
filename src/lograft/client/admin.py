"""The administrator: everything that a cluster can be asked and told besides records.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", partitions=3)])
        print(await admin.list_topics())

Works on Lograft and on Apache Kafka 3.0 and later; what only Lograft can do says so and is refused
by others with `UnsupportedByBroker` or by their error codes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from lograft.client.administering import (
    cluster,
    configs,
    group_offsets,
    group_resets,
    log_dirs,
    retention_holds,
    topic_descriptions,
    topic_groups,
    transactions,
)
from lograft.client.administering import groups as group_requests
from lograft.client.administering import partitions as partition_requests
from lograft.client.administering import topics as topic_requests
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
from lograft.client.types import TopicPartition
from lograft.model.metrics import Sample, values_of
from lograft.model.seams import Address, Runtime

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


class Admin(AsyncResource):
    """Belongs to the event loop in which it was opened. Settings are Kafka's, by their dotted names
    in a mapping or as keywords; `runtime` is for simulations.

    What is asked for several things together returns a mapping; when some of them fail,
    `SomeFailed` has what was done and what was not, and a single one raises its own error.

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
        """Opens the administrator. Nobody is asked yet."""
        if self._core is not None:
            raise WrongUse("the administrator has been started already")
        self._core = ClientCore(self.settings, runtime=self._runtime)
        # Every call asks for what it needs to know at that moment.
        self._core.metadata.close()
        self._opened_driver = RequestDriver(self._core)

    async def connect(self) -> None:
        """Makes sure that one of the named servers answers, and raises ConnectionFailed at once if
        none does; other calls are more patient.

            await admin.connect()
        """
        await self._driver.connect()

    async def probe(self, node: int | Address) -> None:
        """Makes sure that one node answers at its address, a broker by its id at the address that
        it advertises; raises ConnectionFailed at once, whose `stage` says how far it came, or
        BrokerMissing.

            await admin.probe(1)
        """
        await self._driver.probe(node)

    def collect_samples(self) -> Iterator[Sample]:
        # Read at once: in the blocking client another thread iterates over them.
        samples = () if self._core is None else self._core.network.collect_samples()
        return iter(list(samples))

    def metrics(self) -> dict[str, float]:
        """The value of each metric by its name, as docs/metrics.md lists them.

        print(admin.metrics()["lograft_client_connections"])
        """
        return values_of(self)

    async def close(self) -> None:
        if self._core is not None:
            await self._core.close()

    def _describe_open(self) -> str | None:
        core = getattr(self, "_core", None)
        return None if core is None or core.is_closed else "administrator"

    @property
    def _driver(self) -> RequestDriver:
        if self._opened_driver is None:
            raise WrongUse("the administrator is not open: use `async with`, or await start()")
        return self._opened_driver

    # ── topics ───────────────────────────────────────────────────────────────────────────────

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Makes topics.

        created = await admin.create_topics([NewTopic("payments", partitions=3), "refunds"])
        print(created["payments"].id)
        """
        return await topic_requests.create_topics(self._driver, topics, validate_only=validate_only)

    async def delete_topics(self, topics: Iterable[str | UUID]) -> None:
        """Deletes topics with all that is in them, by name or id.

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
        """Gives topics more partitions: so many in all. `assignments`: the brokers of each new one.

        await admin.create_partitions({"orders": 6})
        """
        await topic_requests.create_partitions(
            self._driver, counts, assignments=assignments, validate_only=validate_only
        )

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """All topics, by name; `internal`: also those that the brokers keep for themselves.

        print([topic.name for topic in await admin.list_topics()])
        """
        return await topic_descriptions.list_topics(self._driver, internal=internal)

    async def describe_topics(
        self, topics: Iterable[str | UUID] | None = None, *, replicas: bool = False
    ) -> dict[str, TopicDescription]:
        """Who holds what, by name; None: of all topics. `replicas`: every leader is asked how far
        its replicas are, which Lograft's brokers tell.

        described = await admin.describe_topics(["orders"], replicas=True)
        for partition in described["orders"].partitions:
            print(partition.leader, partition.mode.name, [one.lag for one in partition.states])
        """
        return await topic_descriptions.describe_topics(self._driver, topics, replicas=replicas)

    # ── partitions ───────────────────────────────────────────────────────────────────────────

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        """The first offset since a time in milliseconds, or EARLIEST, LATEST, MAX_TIMESTAMP.

        place = TopicPartition("orders", 0)
        print((await admin.list_offsets({place: LATEST}))[place].offset)
        print(await admin.list_offsets({place: EARLIEST}))
        print(await admin.list_offsets({place: MAX_TIMESTAMP}))
        """
        return await partition_requests.list_offsets(self._driver, partitions, isolation=isolation)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Deletes records below an offset (-1: all that are committed); where the logs begin now.

        await admin.delete_records({TopicPartition("orders", 0): -1})
        """
        return await partition_requests.delete_records(self._driver, before)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that each partition remembers.

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
        """Elects leaders; None: of all partitions that need it. False: it led already.

        `leader` is the broker that should lead the named partitions, in either replication mode: a
        replica that is alive and in sync. Brokers of Lograft only. With
        `auto.leader.rebalance.enable` the first replica leads again after a while; change the order
        of the replicas (`reassign`) for good.

        await admin.elect_leaders(Election.PREFERRED, [TopicPartition("orders", 0)])
        """
        return await partition_requests.elect_leaders(
            self._driver, election, partitions, leader=leader
        )

    async def reassign(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Begins to move partitions to these brokers, the preferred leader first; None takes a move
        back that is under way.

        await admin.reassign({TopicPartition("orders", 0): [1]})
        """
        await partition_requests.reassign(self._driver, replicas)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """What is being moved now.

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
        """Settings by name, all or those that are named.

        found = await admin.describe_configs([topic_resource("orders")])
        print(found[topic_resource("orders")]["retention.ms"].value)
        """
        return await configs.describe_configs(
            self._driver, resources, names=names, synonyms=synonyms, documentation=documentation
        )

    async def describe_skipped_configs(self, brokers: Iterable[int]) -> dict[int, tuple[str, ...]]:
        """Dynamic settings that are stored for a broker, or for all, but that the broker cannot
        apply: each with its reason. Only Lograft's brokers report them.

        print((await admin.describe_skipped_configs([1]))[1])
        """
        return await configs.describe_skipped_configs(self._driver, brokers)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Changes the settings that are named, and no others.

        change = ConfigChange("retention.ms", "3600000")
        await admin.alter_configs({topic_resource("orders"): [change]})
        """
        await configs.alter_configs(self._driver, changes, validate_only=validate_only)

    async def list_config_resources(
        self, kinds: Iterable[ResourceKind] = ()
    ) -> list[ConfigResource]:
        """Whatever can have settings of its own.

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
        """Changes how a topic is replicated while it is in use: Kafka's ISR or Raft, and by how
        many brokers, in one step of the cluster's log. Only Lograft can. `partitions`: only these;
        the mode of a whole topic takes back what was said of single partitions. `describe_topics`
        shows how far it is.

        await admin.alter_replication("orders", mode="raft")
        await admin.alter_replication("orders", mode="isr", partitions=[0])
        """
        await configs.alter_replication(
            self._driver, topic, mode=mode, replicas=replicas, partitions=partitions
        )

    # ── the cluster ──────────────────────────────────────────────────────────────────────────

    async def describe_cluster(self, *, fenced: bool = False) -> ClusterDescription:
        """Who is in the cluster; `fenced`: also brokers that are registered and offline. With
        bootstrap.controllers, `brokers` are the controllers.

        print((await admin.describe_cluster()).brokers)
        """
        return await cluster.describe_cluster(self._driver, fenced=fenced)

    async def describe_features(self) -> Features:
        """Levels of what the nodes must agree on.

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
        """All of it or nothing; level 0 takes a feature away.

        finalized = (await admin.describe_features()).finalized
        levels = {"group.version": finalized["group.version"].highest}
        await admin.update_features(levels, validate_only=True)
        """
        await cluster.update_features(self._driver, levels, kind=kind, validate_only=validate_only)

    async def unregister_broker(self, broker: int) -> None:
        """Forgets a broker that will not come back. Its partitions keep their replicas there:
        reassign them first.

            # The first step of taking broker 7 out for good is `lograft reassign`, the last is
            # await admin.unregister_broker(7)
        """
        await cluster.unregister_broker(self._driver, broker)

    # ── the quorum ───────────────────────────────────────────────────────────────────────────

    async def describe_quorum(self) -> QuorumDescription:
        """Who votes, who leads, and how far everybody is.

        quorum = await admin.describe_quorum()
        print(quorum.leader, [voter.node for voter in quorum.voters])
        """
        return await cluster.describe_quorum(self._driver)

    async def add_voter(self, node: int, directory: UUID, listeners: Mapping[str, Address]) -> None:
        """Lets a controller that follows the quorum vote in it (KIP-853).

        # await admin.add_voter(4, directory_id, {"CONTROLLER": Address("host4", 9093)})
        """
        await cluster.add_voter(self._driver, node, directory, listeners)

    async def remove_voter(self, node: int, directory: UUID) -> None:
        """Takes a controller's vote; it goes on following the quorum.

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
        """What each broker's disks hold.

        for broker, directories in (await admin.describe_log_dirs()).items():
            print(broker, [(one.path, one.usable_bytes) for one in directories])
        """
        return await log_dirs.describe_log_dirs(self._driver, brokers, partitions=partitions)

    async def alter_replica_log_dirs(
        self, directories: Mapping[TopicPartitionReplica, str]
    ) -> None:
        """Starts to move replicas to these log dirs of their brokers; `describe_log_dirs` shows the
        copies that are not complete yet (`is_future`). For a replica that a broker does not have
        yet it fails with REPLICA_NOT_AVAILABLE, and the broker will create the replica in this log
        dir.

        (directory,) = (await admin.describe_log_dirs([1]))[1]
        replica = TopicPartitionReplica("orders", 0, broker=1)
        await admin.alter_replica_log_dirs({replica: directory.path})
        """
        await log_dirs.alter_replica_log_dirs(self._driver, directories)

    # ── groups ───────────────────────────────────────────────────────────────────────────────

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """All groups by name, or those in these states and of these types.

        print([group.group for group in await admin.list_groups(states=["Empty"])])
        """
        return await group_requests.list_groups(self._driver, states=states, types=types)

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """Members and what they have, of either protocol. A group that nobody knows is Dead. Of a
        share or streams group only the type and the state are told.

        group = (await admin.describe_groups(["billing"]))["billing"]
        print(group.state, [member.client for member in group.members])
        """
        return await group_requests.describe_groups(self._driver, groups)

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Deletes groups without members, with all that they have committed.

        await admin.delete_groups(["billing"])
        """
        await group_requests.delete_groups(self._driver, groups)

    async def remove_members(
        self, group: str, instances: Collection[str] | None = None, *, reason: str = ""
    ) -> None:
        """Sends members of a classic group away: static ones by their group.instance.id; None: all.

        await admin.remove_members("billing")
        """
        await group_requests.remove_members(self._driver, group, instances, reason=reason)

    # ── committed offsets ────────────────────────────────────────────────────────────────────

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """What a group has committed: all, or in these partitions.

        print(await admin.list_group_offsets("billing"))
        """
        return await group_offsets.list_group_offsets(self._driver, group, partitions)

    async def list_offsets_of_groups(
        self, groups: Iterable[str], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[str, dict[TopicPartition, GroupOffset]]:
        """What several groups have committed, with one request to each coordinator.

        print(await admin.list_offsets_of_groups(["billing", "audit"]))
        """
        return await group_offsets.list_offsets_of_groups(self._driver, groups, partitions)

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | GroupOffset]
    ) -> None:
        """Sets offsets of a group without members, as Kafka does; `reset_offsets` moves those of a
        group in use.

        await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
        """
        await group_offsets.alter_group_offsets(self._driver, group, offsets)

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forgets where a group stands in partitions of topics that it does not read now.

        await admin.delete_group_offsets("billing", [TopicPartition("orders", 0)])
        """
        await group_offsets.delete_group_offsets(self._driver, group, partitions)

    # ── resets ───────────────────────────────────────────────────────────────────────────────

    async def plan_reset(self, group: str, target: Target, scope: Scope | None = None) -> ResetPlan:
        """What `reset_offsets` would do. No scope: all that the group has committed or reads now.

        scope: Scope = {"orders": {0, 1}}
        plan = await admin.plan_reset("billing", Target(earliest=True), scope)
        print(plan.moves)
        """
        return await group_resets.plan_reset(self._driver, group, target, scope)

    async def plan_undo(self, group: str, scope: Scope | None = None) -> ResetPlan:
        """What `undo_reset` would do: the partitions that the last reset moved, as far as they are
        in the scope.

        # plan = await admin.plan_undo("billing")
        """
        return await group_resets.plan_undo(self._driver, group, scope)

    async def reset_offsets(
        self, group: str, target: Target, scope: Scope | None = None
    ) -> ResetPlan:
        """Moves a group's offsets while its consumers run: they lose their membership, join again
        and begin at the new offsets. All of it or nothing. Only Lograft can; Apache Kafka refuses.

        await admin.reset_offsets("billing", Target(earliest=True), {"orders": None})
        """
        return await group_resets.reset_offsets(self._driver, group, target, scope)

    async def undo_reset(self, group: str, scope: Scope | None = None) -> ResetPlan:
        """Takes the last reset back, while the group's consumers run.

        await admin.reset_offsets("billing", Target(latest=True), {"orders": None})
        await admin.undo_reset("billing")
        """
        return await group_resets.undo_reset(self._driver, group, scope)

    async def execute_reset(self, plan: ResetPlan) -> None:
        """Does what a plan says, in one step.

        # await admin.execute_reset(await admin.plan_undo("billing"))
        """
        await group_resets.execute_reset(self._driver, plan)

    # ── groups and topics ────────────────────────────────────────────────────────────────────

    async def list_topic_groups(self, topics: Iterable[str]) -> dict[str, TopicGroups]:
        """The groups that read each topic, by name.

        readers = (await admin.list_topic_groups(["orders"]))["orders"]
        print(readers.mode, {one.group: one.lag for one in readers.groups})
        """
        return await topic_groups.list_topic_groups(self._driver, topics)

    async def list_retention_holds(
        self, topics: Iterable[str] | None = None, *, now_ms: int
    ) -> list[RetentionHold]:
        """The holds that count at `now_ms` (wall clock), in these topics or in all. Only Lograft
        has them; elsewhere there are none.

        for hold in await admin.list_retention_holds(now_ms=1_800_000_000_000):
            print(hold.group, hold.offset, hold.records_kept)
        """
        return await retention_holds.list_retention_holds(self._driver, topics, now_ms=now_ms)

    # ── transactions ─────────────────────────────────────────────────────────────────────────

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_for_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those that fit; `open_for_ms`: with a transaction that is open
        for longer than that.

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
        """What transactional ids are doing.

        # print((await admin.describe_transactions(["payments"]))["payments"].partitions)
        """
        return await transactions.describe_transactions(self._driver, transactional_ids)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, int]:
        """Ends whoever writes with these ids: open transactions are aborted, and a producer that
        comes back is told that it is fenced. The producer ids.

        await admin.fence_producers(["payments"])
        """
        return await transactions.fence_producers(self._driver, transactional_ids)

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, open_for_ms: int, now_ms: int
    ) -> list[HangingTransaction]:
        """Transactions that block readers of these partitions for longer than that (by the wall
        clock `now_ms`), and that no coordinator will end.

            # hanging = await admin.find_hanging_transactions(places, open_for_ms=900_000, now_ms=…)
        """
        return await transactions.find_hanging_transactions(
            self._driver, partitions, open_for_ms=open_for_ms, now_ms=now_ms
        )

    async def abort_transaction(
        self,
        place: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Writes the marker that ends a hanging transaction in one partition: what it wrote there
        is skipped, and readers go on.

            # for one in hanging:
            #     await admin.abort_transaction(one.place, producer_id=one.producer_id, …)
        """
        await transactions.abort_transaction(
            self._driver,
            place,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
