"""The partitions of this node that are, were or will be in raft mode.

Thousands of Raft groups on a node share one queue of deadlines, one vote journal per log dir, and
batched requests to other nodes and to the controller. The fetch streams (`replica_fetcher`) replace
heartbeats: an idle group only has the cost of two checks of its deadline every few seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerUnreachable, ReplicaNotMovable
from lograft.broker.links.peers import Peers
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import Partition
from lograft.broker.quorum.outgoing_rpcs import BEGIN_VERSIONS, END_VERSIONS, VOTE_VERSIONS
from lograft.broker.replicas.isr_changes import ControllerRequests
from lograft.broker.replicas.raft_partition import RaftPartition
from lograft.broker.replicas.raft_reports import RaftReports
from lograft.broker.replicas.raft_votes import RaftVotes
from lograft.broker.replicas.vote_journal import VoteJournal, order_of
from lograft.consensus.types import RaftSettings, ReplicaKey
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.metrics import Counter, Gauge, Sample, enum_label
from lograft.model.seams import Address, Runtime, Task
from lograft.model.types import BrokerEpoch, NodeId, TopicIdPartition
from lograft.replication.raft_modes import ModeReplica
from lograft.replication.replica import IsrReplica
from lograft.replication.types import Brokers
from lograft.wire.apis import response_class
from lograft.wire.message import Message
from lograft.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from lograft.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from lograft.wire.messages.vote import VoteRequest

LOGGER: Final = logging.getLogger(__name__)
#: Number of ticks before other tasks can run.
TICKS_PER_TURN: Final = 100
#: Delay before the next tick of a replica whose log is being truncated.
BUSY_MS: Final = 20
#: Long, since the stream reports failed requests: it only covers requests lost without an error.
REQUEST_TIMEOUT_MS: Final = 30_000
#: Versions by API key.
VOTING_VERSIONS: Final = {
    VoteRequest.KEY: VOTE_VERSIONS,
    BeginQuorumEpochRequest.KEY: BEGIN_VERSIONS,
    EndQuorumEpochRequest.KEY: END_VERSIONS,
}

PARTITIONS: Final = Gauge(
    "lograft_raft_partitions",
    "Partitions of this broker in raft mode.",
    enum_label("role", ("leader", "other")),
)
VOTE_REQUESTS: Final = Counter(
    "lograft_raft_vote_requests_total", "Requests for votes that were sent for raft partitions."
)


class RaftPartitions:
    def __init__(
        self,
        me: NodeId,
        runtime: Runtime,
        *,
        cluster_id: str,
        metadata: ClusterMetadata,
        address_of: Callable[[NodeId], Address | None],
        brokers: Brokers,
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        self._me = me
        self._runtime = runtime
        self._metadata = metadata
        self._brokers = brokers
        self.cluster_id = cluster_id
        self.address_of = address_of
        self.votes = RaftVotes(self)
        static = metadata.config
        balances = static.auto_leader_rebalance_enable
        self.reports = RaftReports(
            me,
            broker_epoch,
            runtime.clock,
            balance_ms=static.leader_imbalance_check_interval_seconds * 1000 * balances,
        )
        self.settings = RaftSettings(
            election_timeout_ms=static.partition_raft_election_timeout_ms,
            election_backoff_max_ms=static.partition_raft_election_timeout_ms,
            fetch_timeout_ms=static.partition_raft_fetch_timeout_ms,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self._peers: Peers | None = None
        self._ports: dict[TopicIdPartition, RaftPartition] = {}
        self._journals: dict[str, VoteJournal] = {}
        #: (time, sequence number, partition). An entry with another time than the partition's
        #: `deadline_ms` is outdated.
        self._deadlines: list[tuple[int, int, RaftPartition]] = []
        self._order = 0
        self._wake = asyncio.Event()
        self._tasks: list[Task] = []

    # ── start and stop ───────────────────────────────────────────────────────────────────────

    async def load(self, directories: Iterable[LogDirectory]) -> None:
        """Loads the vote journals, before any partition needs them."""
        for directory in directories:
            if directory.offline:
                continue
            journal = VoteJournal(self._runtime, directory.path, on_failed=directory.fail)
            try:
                await self._runtime.workers.run(journal.load, lane=directory.path)
            except DiskFailed as error:
                directory.fail(error)
                continue
            self._journals[directory.path] = journal
            self._tasks.append(self.spawn(journal.run(), name=f"votes in {directory.path}"))

    def forget_deleted(self, exists: Callable[[TopicIdPartition], bool]) -> None:
        """Deletes the votes of topics that were deleted while this broker was down."""
        for journal in self._journals.values():
            for key in journal.partitions:
                if not exists(key):
                    journal.forget(key)

    def start(self, peers: Peers, link: ControllerRequests) -> None:
        self._peers = peers
        self._tasks += [
            self.spawn(self._tick(), name="raft deadlines"),
            self.spawn(self.reports.run(link), name="raft reports"),
        ]

    def hand_over(self) -> None:
        """Resigns as leader of all partitions, before a shutdown."""
        for port in list(self._ports.values()):
            if port.modes.raft is not None and not port.partition.is_deleted:
                port.modes.raft.resign()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for journal in self._journals.values():
            journal.stop()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        return self._runtime.spawn(work, name=name)

    def now_ms(self) -> int:
        return self._runtime.clock.mono_ms()

    def wall_ms(self) -> int:
        return self._runtime.clock.wall_ms()

    async def request(self, to: NodeId, address: Address, message: Message, *, lane: str) -> Any:
        """Sends a Vote, BeginQuorumEpoch or EndQuorumEpoch request and returns the response."""
        if self._peers is None:
            raise PeerUnreachable(address, "this node has not started", refused=False)
        return await self._peers.request(
            address,
            message,
            VOTING_VERSIONS[message.KEY],
            response_class(message.KEY),
            timeout_ms=self.settings.election_timeout_ms,
            lane=lane,
            listener=self._metadata.config.inter_broker_listener_name,
            lograft_only=True,
        )

    # ── partitions ───────────────────────────────────────────────────────────────────────────

    def build_mode_replica(self, partition: Partition, isr: IsrReplica) -> ModeReplica:
        directory, log = partition.directory, partition.log
        assert directory is not None
        assert log is not None
        key = TopicIdPartition(partition.topic_id, partition.index)
        # The replica may have been in other log dirs of this node before: the newest of all its
        # states applies.
        known = (journal.state_of(key) for journal in self._journals.values())
        state = max(known, key=order_of)
        port = RaftPartition(self, partition, self._journals[directory.path], state)
        port.modes = ModeReplica(
            ReplicaKey(self._me, directory.directory_id),
            isr,
            log=log,
            brokers=self._brokers,
            settings=isr.settings,
            raft_settings=self.settings,
            chance=self._runtime.randomness.below,
            port=port,
            journal=state,
            past_directories=partition.past_directories,
        )
        self._ports[port.key] = port
        return port.modes

    def is_ready(self, directory: LogDirectory) -> bool:
        """Whether the votes in this log dir were loaded; those of a failed one were not."""
        return directory.path in self._journals

    def find(self, key: TopicIdPartition) -> RaftPartition | None:
        return self._ports.get(key)

    def on_removed(self, partition: Partition, *, is_deleted: bool) -> None:
        """The partition was removed from this node. Its votes are deleted only with the topic:
        otherwise the replica may be assigned again, and must not vote twice in an epoch."""
        port = self._ports.pop(TopicIdPartition(partition.topic_id, partition.index), None)
        if port is not None:
            self.reports.forget(port)
            if is_deleted:
                for journal in self._journals.values():
                    journal.forget(port.key)

    def on_role(self, partition: Partition) -> None:
        """The role of the partition changed, or it became ready to serve."""
        if not partition.is_switchable:
            return
        port = self._ports.get(TopicIdPartition(partition.topic_id, partition.index))
        if port is not None and not partition.is_deleted and not partition.offline:
            port.overlay()
            self.reports.consider(port)

    def on_rejected(self, node_id: NodeId) -> None:
        """The process of a node has terminated: its followers elect other leaders now."""
        for port in list(self._ports.values()):
            raft = port.modes.raft
            if raft is not None and not port.partition.is_deleted:
                raft.on_unreachable(node_id)

    # ── replicas that move to another log dir (`broker/logs/log_moves.py`) ───────────────────

    def pause(self, partition: Partition) -> bool:
        """Stops decisions and votes until `resume`. Returns False if the replica was never in raft
        mode."""
        port = self._ports.get(TopicIdPartition(partition.topic_id, partition.index))
        if port is None or port.partition is not partition:
            return False
        port.pause()
        return True

    async def carry_votes(self, partition: Partition, target: LogDirectory) -> None:
        """Stores the votes in the target log dir. Raises DiskFailed and ReplicaNotMovable."""
        port = self._ports.get(TopicIdPartition(partition.topic_id, partition.index))
        journal = self._journals.get(target.path)
        if port is None or journal is None:
            raise ReplicaNotMovable(f"{partition.topic_partition}: {target.path} cannot be used")
        await port.carry_votes(journal)

    def resume(self, partition: Partition, *, is_moved: bool) -> None:
        port = self._ports.get(TopicIdPartition(partition.topic_id, partition.index))
        directory = partition.directory
        if port is None or port.partition is not partition or directory is None:
            return
        if is_moved:
            me = ReplicaKey(self._me, directory.directory_id)
            port.modes.on_moved(me, partition.past_directories)
        port.resume(self._journals[directory.path] if is_moved else None)

    # ── deadlines ────────────────────────────────────────────────────────────────────────────

    def on_deadline(self, port: RaftPartition) -> None:
        raft = port.modes.raft
        when_ms = None if raft is None else raft.deadline_ms
        if when_ms is not None and (port.deadline_ms is None or when_ms < port.deadline_ms):
            self._schedule(port, when_ms)

    def _schedule(self, port: RaftPartition, when_ms: int) -> None:
        port.deadline_ms = when_ms
        self._order += 1
        entry = (when_ms, self._order, port)
        heappush(self._deadlines, entry)
        if self._deadlines[0] is entry:
            self._wake.set()

    async def _tick(self) -> None:
        while True:
            now_ms = self.now_ms()
            ticks = 0
            while self._deadlines and self._deadlines[0][0] <= now_ms:
                when_ms, _, port = heappop(self._deadlines)
                if port.deadline_ms == when_ms:
                    self._tick_partition(port, now_ms)
                ticks += 1
                if ticks % TICKS_PER_TURN == 0:
                    await asyncio.sleep(0)
            self._wake.clear()
            wait_s = None
            if self._deadlines:
                wait_s = max(1, self._deadlines[0][0] - self.now_ms()) / 1000
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _tick_partition(self, port: RaftPartition, now_ms: int) -> None:
        port.deadline_ms = None
        raft = port.modes.raft
        if raft is None or port.partition.is_deleted or port.partition.offline:
            return
        when_ms = raft.deadline_ms
        if when_ms is not None and when_ms <= now_ms:
            try:
                port.tick()
            except LograftError as error:
                LOGGER.error("%s: %s", port.partition.topic_partition, error)
            raft = port.modes.raft
            when_ms = None if raft is None else raft.deadline_ms
        if when_ms is not None and port.deadline_ms is None:
            self._schedule(port, max(when_ms, now_ms + BUSY_MS if when_ms <= now_ms else 0))

    def collect_samples(self) -> Iterator[Sample]:
        for role in ("leader", "other"):
            yield PARTITIONS.sample(0, role)
        for port in list(self._ports.values()):
            raft = port.modes.raft
            if raft is not None:
                yield PARTITIONS.sample(1, "other" if raft.leader is None else "leader")
        yield VOTE_REQUESTS.sample(self.votes.requests)
        yield from self.reports.collect_samples()
        for journal in list(self._journals.values()):
            yield from journal.collect_samples()
