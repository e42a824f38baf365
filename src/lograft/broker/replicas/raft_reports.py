"""Reports of raft leaders to the controller, in AlterPartition with Lograft's tags: that a
partition can enter raft mode, the elected leader, the in-sync replicas and the voters.

In raft mode the leader adds and removes replicas by changing the voter set, one voter at a time.
Its next report lets the controller complete the reassignment.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar
from uuid import UUID

from lograft.broker.replicas.isr_changes import ControllerRequests
from lograft.broker.replicas.raft_partition import RaftPartition
from lograft.consensus.messages import AddVoterRequest, RemoveVoterRequest
from lograft.consensus.types import ReplicaKey, Voter
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.model.seams import Clock
from lograft.model.types import ZERO_UUID, BrokerEpoch, NodeId, Offset, ReplicationMode
from lograft.replication.raft_replica import RaftReplica
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)

VERSIONS: Final = Versions(3, 3)
TIMEOUT_MS: Final = 10_000
PARTITIONS_MAX: Final = 1_000
#: Interval at which leaders in an entering epoch check if they can enter raft mode.
ENTERING_MS: Final = 10
#: Interval at which leaders check which replicas are in sync, and if the voters are the replicas.
SWEEP_MS: Final = 2_000
#: The same while the voters change.
CHANGING_MS: Final = 200
#: Backoff before a retry.
RETRY_MS: Final = 100

ENTERING, RAFT = ReplicationMode.ENTERING, ReplicationMode.RAFT

PARTITIONS_ENTERING: Final = Gauge(
    "lograft_raft_partitions_entering",
    "Partitions led by this broker that are changing to raft mode.",
)
REQUESTS: Final = Counter(
    "lograft_raft_report_requests_total",
    "Requests that reported leaders of raft partitions to the controller.",
)


class RaftReports:
    def __init__(
        self,
        me: NodeId,
        broker_epoch: Callable[[], BrokerEpoch],
        clock: Clock,
        *,
        balance_ms: int,
    ) -> None:
        """`balance_ms` is the interval at which leaders hand over to the preferred replica; 0 to
        disable it."""
        self._me = me
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._balance_ms = balance_ms
        self._balanced_ms = clock.mono_ms()
        #: Leaders in an entering epoch.
        self._entering: dict[RaftPartition, None] = {}
        #: Leaders of raft partitions; the value tells whether a report is due.
        self._leading: dict[RaftPartition, bool] = {}
        self._has_reports = False
        #: Whether a leader's voters differ from the replicas in the metadata.
        self._changing = False
        self._wake = asyncio.Event()
        self._requests = 0

    def consider(self, port: RaftPartition) -> None:
        """The role or mode of the partition changed."""
        modes = port.modes
        if modes.raft is not None:
            self._entering.pop(port, None)
            if modes.raft.leader is None:
                self._leading.pop(port, None)
                return
            if modes.assignment.adding or modes.assignment.removing:
                self._changing = True
            if not self._is_known(port, modes.raft):
                self._schedule(port)
            elif port not in self._leading:
                self._leading[port] = False
                self._wake.set()
        elif modes.assignment.mode is ENTERING and modes.leader is not None:
            self._entering[port] = None
            self._wake.set()

    def _schedule(self, port: RaftPartition) -> None:
        self._leading[port] = True
        self._has_reports = True
        self._wake.set()

    def forget(self, port: RaftPartition) -> None:
        self._entering.pop(port, None)
        self._leading.pop(port, None)

    async def run(self, link: ControllerRequests) -> None:
        swept_ms = self._clock.mono_ms()
        while True:
            now_ms = self._clock.mono_ms()
            interval_ms = CHANGING_MS if self._changing else SWEEP_MS
            if now_ms - swept_ms >= interval_ms:
                swept_ms = now_ms
                self._sweep()
            reports = self._take_reports()
            if reports and not await self._exchange(link, reports):
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            self._wake.clear()
            wait_ms = ENTERING_MS if self._entering else interval_ms
            if not self._entering and not self._leading:
                await self._wake.wait()
            elif not self._has_reports:
                try:
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    # ── contents of reports ──────────────────────────────────────────────────────────────────

    def _take_reports(self) -> dict[RaftPartition, AlterPartitionRequestPartitionData]:
        found: dict[RaftPartition, AlterPartitionRequestPartitionData] = {}
        for port in list(self._entering):
            if port.modes.assignment.mode is not ENTERING or port.modes.leader is None:
                del self._entering[port]
            elif len(found) < PARTITIONS_MAX and port.modes.can_enter_raft:
                found[port] = self._build_entering_report(port)
        if self._has_reports:
            self._has_reports = False
            for port, is_due in self._leading.items():
                if not is_due:
                    continue
                if len(found) >= PARTITIONS_MAX:
                    self._has_reports = True
                    break
                raft = port.modes.raft
                if raft is not None and raft.leader is not None and raft.leader.is_serving:
                    self._leading[port] = False
                    found[port] = self._build_report(port, raft)
        return found

    def _build_entering_report(self, port: RaftPartition) -> AlterPartitionRequestPartitionData:
        assignment, leader = port.modes.assignment, port.modes.leader
        assert leader is not None
        return AlterPartitionRequestPartitionData(
            partition_index=port.partition.index,
            leader_epoch=assignment.leader_epoch,
            partition_epoch=assignment.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=status.node_id, broker_epoch=status.broker_epoch)
                for status in leader.statuses(port.log.log_start_offset)
                if status.node_id in assignment.isr
            ],
            replication_mode=RAFT,
        )

    def _build_report(
        self, port: RaftPartition, raft: RaftReplica
    ) -> AlterPartitionRequestPartitionData:
        core = raft.core
        return AlterPartitionRequestPartitionData(
            partition_index=port.partition.index,
            leader_epoch=core.epoch,
            partition_epoch=port.modes.assignment.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=node, broker_epoch=-1) for node in self._in_sync(port, raft)
            ],
            replication_mode=RAFT,
            raft_life=core.life,
            # An uncommitted voter change may still be truncated.
            raft_voters=list(core.log.voters_at(raft.high_watermark).node_ids),
        )

    def _in_sync(self, port: RaftPartition, raft: RaftReplica) -> list[NodeId]:
        assert raft.leader is not None
        return [
            status.node_id
            for status in raft.leader.statuses(port.log.log_start_offset)
            if status.in_sync
        ]

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    async def _exchange(
        self,
        link: ControllerRequests,
        reports: dict[RaftPartition, AlterPartitionRequestPartitionData],
    ) -> bool:
        """Sends the reports. Returns False if some must be retried."""
        topics: dict[UUID, AlterPartitionRequestTopicData] = {}
        for port, data in reports.items():
            topic_id = port.partition.topic_id
            topic = topics.setdefault(topic_id, AlterPartitionRequestTopicData(topic_id=topic_id))
            topic.partitions.append(data)
        request = AlterPartitionRequest(
            broker_id=self._me, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )
        self._requests += 1
        try:
            response = await link.request(
                request,
                VERSIONS,
                AlterPartitionResponse,
                timeout_ms=TIMEOUT_MS,
                lograft_only=True,
            )
        except LograftError as error:
            LOGGER.info("could not send reports of raft leaders, retrying: %s", error)
            self._retry(reports)
            return False
        results: dict[tuple[UUID, int], Any] = {
            (topic.topic_id, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        settled = not response.error_code
        for port in reports:
            result = results.get((port.partition.topic_id, port.partition.index))
            if result is None or result.error_code not in (
                ErrorCode.NONE,
                # Newer metadata is about to arrive.
                ErrorCode.FENCED_LEADER_EPOCH,
                ErrorCode.INVALID_UPDATE_VERSION,
            ):
                settled = False
                self._retry((port,))
            elif port in self._entering and not result.error_code:
                del self._entering[port]
        return settled

    def _retry(self, ports: Any) -> None:
        for port in ports:
            if port in self._leading:
                self._schedule(port)

    # ── in-sync replicas and voters ──────────────────────────────────────────────────────────

    def _is_known(self, port: RaftPartition, raft: RaftReplica) -> bool:
        assignment = port.modes.assignment
        return assignment.leader == self._me and assignment.leader_epoch == raft.core.epoch

    def _sweep(self) -> None:
        self._changing = False
        self._balance()
        for port in list(self._leading):
            raft = port.modes.raft
            if raft is None or raft.leader is None or not raft.leader.is_serving:
                continue
            assignment = port.modes.assignment
            if assignment.adding or assignment.removing:
                self._changing = True
                self._change_voters(port, raft)
            elif (renaming := raft.leader.find_moved_voter()) is not None:
                self._changing = True
                raft.step(renaming)
            elif not self._is_known(port, raft) or (
                set(self._in_sync(port, raft)) != set(assignment.isr)
            ):
                self._schedule(port)

    def _balance(self) -> None:
        """Hands leadership over to the preferred replica if that is in sync."""
        now_ms = self._clock.mono_ms()
        if not self._balance_ms or now_ms - self._balanced_ms < self._balance_ms:
            return
        self._balanced_ms = now_ms
        for port in list(self._leading):
            raft, assignment = port.modes.raft, port.modes.assignment
            if raft is None or raft.leader is None or not self._is_known(port, raft):
                continue
            first = assignment.replicas[0]
            statuses = {status.node_id: status for status in raft.leader.statuses(Offset(0))}
            if first != self._me and first in statuses and statuses[first].in_sync:
                port.hand_over(first)

    def _change_voters(self, port: RaftPartition, raft: RaftReplica) -> None:
        """Starts the next voter change of a reassignment; the core rejects it until the previous
        one is committed."""
        assignment, voters = port.modes.assignment, raft.core.voters
        target = [node for node in assignment.replicas if node not in assignment.removing]
        directories = assignment.directories or (ZERO_UUID,) * len(assignment.replicas)
        keys = dict(zip(assignment.replicas, directories, strict=True))
        for node in target:
            if voters.find(node) is None:
                raft.step(AddVoterRequest(voter=Voter(ReplicaKey(node, keys[node]))))
                return
        for voter in voters.voters:
            if voter.key.node_id not in target:
                raft.step(RemoveVoterRequest(key=voter.key))
                return
        self._schedule(port)

    def collect_samples(self) -> Iterator[Sample]:
        yield PARTITIONS_ENTERING.sample(len(self._entering))
        yield REQUESTS.sample(self._requests)
