"""Runs coordinators: one core for each partition of an internal topic that this broker leads.

`ask` passes a command to the core of its key. Cores execute commands synchronously, in the order of
the calls: the records are appended and replayed before anything else runs, and the reply is
released when they are committed (coordinator_shard.py). A broker that becomes the leader of a
partition first replays its log, in slices, so that the event loop remains responsive. Until then it
rejects requests with CoordinatorLoading.

The broker calls `on_role` when the role of a partition of the topic changes, and `on_image` when
the metadata image changes.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.coordinators.coordinator_records import (
    BatchEnd,
    MarkerEntry,
    RecordEntry,
    read_log,
)
from lograft.broker.coordinators.coordinator_shard import Shard, ShardSettings, coordinator_error
from lograft.broker.partitions.partition import Partition
from lograft.coordination.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    UnreadableRecord,
)
from lograft.coordination.types import CoordinatorResult, Core, Effect, NeedsLongWork, Ticket
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import LograftError
from lograft.model.metrics import DURATION_BUCKETS, Counter, Gauge, Histogram, Label, Sample
from lograft.model.seams import FileSlice, Runtime
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import Epoch, Offset
from lograft.storage.types import TransactionEnd
from lograft.wire.message import Message
from lograft.wire.record_frames import Coordinator

LOGGER: Final = logging.getLogger(__name__)
C = TypeVar("C", bound=Core)
C_co = TypeVar("C_co", bound=Core, covariant=True)

#: Bytes of the log that one read of a load returns.
LOAD_BYTES: Final = 1 << 20
#: Entries that are replayed, in about 3 ms, before other tasks of the event loop run.
ENTRIES_PER_TURN: Final = 250
#: Partitions that are loaded at the same time. A broker that becomes the leader of many partitions
#: serves the first ones soon, and continues to handle the heartbeats of their members.
CONCURRENT_LOADS_MAX: Final = 4
#: A record cannot contain a longer group or transactional id, so no shard has it. This avoids
#: hashing a key of a hundred megabytes.
KEY_LENGTH_MAX: Final = 32_767
#: Longer keys are not cached, because the cache has thousands of entries.
CACHED_KEY_LENGTH_MAX: Final = 256

_TOPIC: Final = Label("topic", 8)
SHARDS: Final = Gauge(
    "lograft_coordinator_partitions",
    "Partitions of an internal topic that this broker coordinates.",
    _TOPIC,
    Label("state", 2, ("loaded", "loading")),
)
LOAD_SECONDS: Final = Histogram(
    "lograft_coordinator_load_seconds",
    "Time to load a partition of an internal topic after this broker became its leader.",
    _TOPIC,
    bounds=DURATION_BUCKETS,
)
REQUESTS: Final = Counter(
    "lograft_coordinator_requests_total", "Commands handled by coordinators of this broker.", _TOPIC
)


class CoordinatorKind(Protocol[C_co]):
    """The differences between the coordinators of groups and those of transactions."""

    @property
    def topic(self) -> str: ...

    @property
    def frames(self) -> Coordinator: ...

    @property
    def on_effect(self) -> Callable[[Effect], None]:
        """Executes an effect of a core. It must not call a coordinator before it returns."""

    def make_core(self, index: int, epoch: Epoch) -> C_co:
        """Returns a core for a partition that this broker leads in this epoch."""

    def partition_count(self, config: BrokerConfig) -> int:
        """Returns the partition count with which the topic is created."""

    def compression(self, config: BrokerConfig) -> int: ...

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        """Returns how long replies wait for a commit."""


class CoordinatorRuntime(Generic[C]):
    def __init__(
        self,
        kind: CoordinatorKind[C],
        runtime: Runtime,
        *,
        metadata: ClusterMetadata,
        has_lease: Callable[[], bool],
    ) -> None:
        """`has_lease` returns whether this broker's session is valid, so that the controller cannot
        have elected other leaders for its partitions."""
        self.topic = kind.topic
        self._kind = kind
        self._runtime = runtime
        self._metadata = metadata
        self._has_lease = has_lease
        self._settings = ShardSettings(
            commit_timeout_ms=lambda: kind.commit_timeout_ms(metadata.config),
            compression=lambda: kind.compression(metadata.config),
            on_effect=kind.on_effect,
        )
        #: The topic's partition count in the current image; None if it is not cached.
        self._partition_count: int | None = None
        #: The partitions that this broker leads, loaded or not.
        self._shards: dict[int, Shard[C]] = {}
        #: The partitions that this broker leads but could not load.
        self._unreadable: dict[int, Shard[C]] = {}
        self._load_slots = asyncio.Semaphore(CONCURRENT_LOADS_MAX)
        #: Held by the command whose long work is in progress.
        self._long_work = asyncio.Lock()
        self._load_seconds = LOAD_SECONDS.make_recorder()
        self._requests = 0

    # ── finding the shard ────────────────────────────────────────────────────────────────────

    @property
    def partition_count(self) -> int:
        if self._partition_count is None:
            topic = self._metadata.image.topic(self.topic)
            if topic is None:
                return self._kind.partition_count(self._metadata.config)
            self._partition_count = len(topic.partitions)
        return self._partition_count

    def partition_of(self, key: str) -> int:
        return key_hash(key) % self.partition_count

    def led_for(self, key: str) -> Partition:
        """Returns the partition of the internal topic that `key` belongs to. Raises NotCoordinator
        or CoordinatorLoading."""
        return self._shard(self.partition_of(key)).partition

    def leads(self, index: int, epoch: Epoch) -> bool:
        """Returns whether this broker still leads the partition in this epoch."""
        shard = self._shards.get(index)
        return shard is not None and shard.leader_epoch == epoch

    def _shard(self, index: int) -> Shard[C]:
        shard = self._shards.get(index)
        if index in self._unreadable:
            raise NotCoordinator(f"{self.topic}-{index} could not be loaded")
        if shard is None and not self._is_appointed(index):
            raise NotCoordinator(f"this broker does not lead {self.topic}-{index}")
        if shard is None or not shard.is_loaded:
            raise CoordinatorLoading(f"{self.topic}-{index} is being loaded")
        # Reads do not involve the other replicas. Without a valid session, this broker could return
        # outdated state although another coordinator has replaced it.
        if len(shard.partition.assignment.replicas) > 1 and not self._has_lease():
            raise NotCoordinator(f"another broker may lead {self.topic}-{index} by now")
        return shard

    def _is_appointed(self, index: int) -> bool:
        """Returns whether this broker is the leader in the metadata image, even if the log is not
        open yet. Then clients should retry rather than look for another coordinator."""
        topic = self._metadata.image.topic(self.topic)
        state = None if topic is None else topic.partitions.get(index)
        return (
            state is not None
            and state.leader == self._metadata.config.node_id
            and self._has_lease()
        )

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def ask_now(
        self, key: str, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message | Awaitable[Message]:
        """Like `ask`, but returns the reply itself if it need not wait."""
        return self.ask_partition(self.partition_of(key), decide)

    def ask_partition(
        self, index: int, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message | Awaitable[Message]:
        """Like `ask_now`, for a partition of the internal topic instead of a key."""
        self._requests += 1
        try:
            return self._shard(index).ask(decide)
        except NeedsLongWork as work:
            return self._ask_after(work, index, decide)

    async def _ask_after(
        self, work: NeedsLongWork, index: int, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message:
        """Does one long work at a time, so that other tasks run between any two pieces."""
        async with self._long_work:
            for _ in work.pieces:
                await asyncio.sleep(0)
        reply = self.ask_partition(index, decide)
        return reply if isinstance(reply, Message) else await reply

    def ask_alone(
        self, key: str, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message | Awaitable[Message] | None:
        """Like `ask_now` if this broker has the only replica of the partition. Otherwise returns
        None without executing the command."""
        index = self.partition_of(key)
        shard = self._shards.get(index)
        if shard is None or len(shard.partition.assignment.replicas) > 1:
            return None
        return self.ask_partition(index, decide)

    async def ask(
        self,
        key: str,
        decide: Callable[[C, Ticket, int], CoordinatorResult],
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Executes a command in the core that `key` belongs to, and returns the reply. Raises
        NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable, and errors of the command."""
        reply = self.ask_now(key, decide)
        if isinstance(reply, Message):
            return reply
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await reply
        except TimeoutError:
            raise CoordinatorNotAvailable(f"no response within {timeout_ms} ms") from None

    async def ask_every(self, decide: Callable[[C, Ticket, int], CoordinatorResult]) -> list[Any]:
        """Executes a command in all partitions that this broker leads, and returns the replies.
        Raises CoordinatorLoading if one is not loaded, because the result would be incomplete."""
        indexes = sorted(self._shards)
        for index in indexes:
            self._shard(index)
        replies = [self.ask_partition(index, decide) for index in indexes]
        try:
            return [reply if isinstance(reply, Message) else await reply for reply in replies]
        finally:
            for reply in replies:
                if inspect.iscoroutine(reply):
                    reply.close()

    def loaded_partitions(self) -> list[int]:
        """Returns the partitions that `ask_every` includes."""
        return sorted(self._shards)

    def append_marker(self, index: int, end: TransactionEnd) -> Offset:
        """Appends a transaction marker to a partition of this topic; returns the log end offset,
        which is not committed yet. Raises the errors of `ask` and of the log."""
        try:
            return self._shard(index).append_marker(end)
        except LograftError as error:
            raise coordinator_error(error) from None

    # ── changes of roles and metadata ────────────────────────────────────────────────────────

    def on_role(self, partition: Partition) -> None:
        """Handles a partition of this topic that changed its role, became ready, or was removed."""
        index = partition.index
        unreadable = self._unreadable.get(index)
        if unreadable is not None:
            if unreadable.is_current(partition):
                return
            del self._unreadable[index]
        shard = self._shards.get(index)
        if shard is not None:
            if shard.is_current(partition):
                return
            if partition is not shard.partition and partition.leader is None:
                return  # a partition of a deleted topic with the same name
            del self._shards[index]
            shard.close()
            LOGGER.info("%s: this broker is no longer its coordinator", partition.topic_partition)
        leader = partition.leader
        if leader is None or not partition.serves or partition.is_deleted or partition.offline:
            return
        core = self._kind.make_core(index, leader.leader_epoch)
        shard = Shard(partition, core, clock=self._runtime.clock, settings=self._settings)
        self._shards[index] = shard
        self._runtime.spawn(self._load(shard), name=f"load {partition.topic_partition}")

    def on_image(self, delta: MetadataDelta) -> None:
        self._partition_count = None
        for shard in list(self._shards.values()):
            if shard.is_loaded:
                shard.apply(shard.core.on_image(delta))

    def stop(self) -> None:
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.close()

    # ── loading ──────────────────────────────────────────────────────────────────────────────

    async def _load(self, shard: Shard[C]) -> None:
        partition, clock = shard.partition, self._runtime.clock
        try:
            async with self._load_slots:
                began_ms = clock.mono_ms()
                count = None if shard.is_over else await self._replay(shard)
        except LograftError as error:
            if not shard.is_over:
                # As in Kafka, this broker does not coordinate the partition until it becomes its
                # leader again.
                message = "could not load %s: %s"
                LOGGER.error(message, partition.topic_partition, error, exc_info=error.__cause__)
                del self._shards[partition.index]
                self._unreadable[partition.index] = shard
                shard.close()
            return
        if count is None:
            return
        took_ms = clock.mono_ms() - began_ms
        self._load_seconds.observe(took_ms / 1000)
        level = logging.INFO if count else logging.DEBUG
        message = "loaded %d entries of %s in %d ms"
        LOGGER.log(level, message, count, partition.topic_partition, took_ms)
        for note in shard.core.load_notes():
            LOGGER.warning("%s: %s", partition.topic_partition, note)

    async def _replay(self, shard: Shard[C]) -> int | None:
        """Replays the whole log and returns the number of entries; None if the leadership ended
        before."""
        partition = shard.partition
        log = partition.leader_log()
        offset, count = log.log_start_offset, 0
        while offset < log.end_offset:
            piece = partition.read(
                offset, bytes_max=LOAD_BYTES, bound=log.end_offset, at_least_one=True
            )
            if piece is None:
                break  # compaction has removed the records at the end
            for entry in read_log(self._kind.frames, await self._read(partition, piece)):
                if isinstance(entry, BatchEnd):
                    offset = entry.next_offset
                else:
                    _replay_entry(shard.core, entry)
                count += 1
                if count % ENTRIES_PER_TURN == 0:
                    await asyncio.sleep(0)
                if shard.is_over:
                    return None
        # There was no await since the last check of the log end, so nothing was appended.
        shard.on_loaded(log.end_offset)
        return count

    async def _read(self, partition: Partition, piece: FileSlice) -> bytes:
        try:
            return await self._runtime.workers.run(
                lambda: piece.file.pread(piece.size, piece.position)
            )
        except OSError as error:
            failed = partition.leader_log().fail_with(error)
            partition.on_disk_failed(failed)
            raise failed from error

    def shards(self) -> dict[int, Shard[C]]:
        """Returns the shards of the partitions that this broker leads, loaded or not."""
        return self._shards

    def collect_samples(self) -> Iterator[Sample]:
        shards = list(self._shards.values())
        loaded = [shard for shard in shards if shard.is_loaded]
        yield SHARDS.sample(len(loaded), self.topic, "loaded")
        yield SHARDS.sample(len(shards) - len(loaded), self.topic, "loading")
        yield LOAD_SECONDS.sample(self._load_seconds, self.topic)
        yield REQUESTS.sample(self._requests, self.topic)
        for shard in loaded:
            yield from shard.core.collect_samples()


def _replay_entry(core: Core, entry: RecordEntry | MarkerEntry) -> None:
    if isinstance(entry, MarkerEntry):
        core.replay_marker(entry.producer_id, entry.producer_epoch, committed=entry.committed)
        return
    record, offset, producer_id, producer_epoch = entry
    try:
        core.replay(record, offset=offset, producer_id=producer_id, producer_epoch=producer_epoch)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # A record that no coordinator wrote must not prevent the node from starting.
        raise UnreadableRecord(f"the record at offset {offset} is invalid") from error


def key_hash(key: str) -> int:
    """Returns the absolute value of Java's `String.hashCode()`, which is over UTF-16 units."""
    if len(key) > KEY_LENGTH_MAX:
        return 0
    return _cached_hash(key) if len(key) <= CACHED_KEY_LENGTH_MAX else _hash(key)


def _hash(key: str) -> int:
    units = memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFF_FFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


_cached_hash = lru_cache(maxsize=1 << 14)(_hash)
