"""Inspects the state of coordinators before time advances: G2 from the inside."""

from collections.abc import Callable
from uuid import UUID

from lograft.broker.coordinators.coordinator_shard import Shard
from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_member import iterate_partitions
from lograft.coordination.group_shard import GroupShard
from lograft.simulation.cluster import SimulatedCluster
from lograft.simulation.history import History

ReportViolation = Callable[[str, str], None]


class GroupWatch:
    def __init__(
        self, cluster: SimulatedCluster, history: History, report_violation: ReportViolation
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._report_violation = report_violation
        #: Epoch of the latest coordinator of each group, and its members.
        self._members: dict[str, tuple[int, dict[str, None]]] = {}
        #: Last inspected state by node and partition, to inspect only changes.
        self._seen: dict[tuple[int, int], tuple[object, int]] = {}

    def inspect(self, nodes: list[int]) -> None:
        for node_id in nodes:
            host = self._cluster.hosts[node_id]
            node = host.node
            if node is None or not host.serving.is_set():
                continue
            for index, shard in node.broker.coordinators.groups.shards().items():
                if not shard.is_loaded:
                    continue
                mark = (shard, shard.end)
                if self._seen.get((node_id, index)) != mark:
                    self._seen[node_id, index] = mark
                    self._check_shard(shard)

    def _check_shard(self, shard: Shard[GroupShard]) -> None:
        for group_id, group in shard.core.groups.items():
            if isinstance(group, ConsumerGroup):
                self._check_owners(group)
            if isinstance(group, ConsumerGroup | ClassicGroup):
                self._record_removed_members(
                    group_id, shard.leader_epoch, dict.fromkeys(group.members)
                )

    def _check_owners(self, group: ConsumerGroup) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for member_id, member in group.members.items():
            for place in iterate_partitions(member.assigned, member.revoking):
                owner = owners.setdefault(place, member_id)
                if owner != member_id:
                    self._report_violation(
                        "G2", f"{group.group_id}: {place[1]} is assigned to {owner} and {member_id}"
                    )

    def _record_removed_members(self, group_id: str, epoch: int, members: dict[str, None]) -> None:
        known_epoch, known = self._members.get(group_id, (-1, {}))
        if epoch < known_epoch:
            return
        for member in known:
            if member not in members:
                self._history.record("watch", "probe", "member_gone", group=group_id, member=member)
        self._members[group_id] = (epoch, members)
