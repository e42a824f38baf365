"""Runs coordinators: one core for each partition of an internal topic that this broker leads.

`ask` brings a request to the core of its key. The core decides at once, in the order of the calls;
its records are appended and replayed before anything else runs, and its reply is given when all
that it rests on is committed (coordinator_shard.py). A broker that becomes leader of a partition
first replays its log, in slices, so that the loop stays responsive; until then it answers
CoordinatorLoading.

Told by the broker: `on_role` when a partition of the topic is led here, or no longer; `on_image`
when the metadata moved.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeVar

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.coordinators.coordinator_records import Ended, Passed, Written, read_log
from lograft.broker.coordinators.coordinator_shard import Shard, ShardSettings, as_told
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

#: Of the log, read at once while loading.
LOAD_BYTES: Final = 1 << 20
#: After so many entries (some 3 ms) the loop gets its turn.
ENTRIES_PER_TURN: Final = 250
#: Partitions that are loaded at the same time: a broker that inherits many at once serves the first
#: soon, and its loop, where the others' heartbeats come in, is never busy with all of them.
LOADS_AT_ONCE: Final = 4
#: No record has room for a longer group or transactional id: whichever shard is asked does not have
#: it, and nobody has to wait while the hash of a hundred megabytes is counted.
KEY_LENGTH_MAX: Final = 32_767
#: The hashes of longer keys are not kept: many thousands of keys are.
KEY_LENGTH_REMEMBERED: Final = 256

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
    "lograft_coordinator_requests_total", "Commands to coordinators of this broker.", _TOPIC
)


class CoordinatorKind(Protocol[C_co]):
    """What makes the coordinators of groups differ from those of transactions."""

    @property
    def topic(self) -> str: ...

    @property
    def frames(self) -> Coordinator: ...

    @property
    def on_effect(self) -> Callable[[Effect], None]:
        """Does what a core wants done; must not ask a coordinator before it returns."""

    def make_core(self, index: int, epoch: Epoch) -> C_co:
        """For a partition led in this epoch."""

    def partition_count(self, config: BrokerConfig) -> int:
        """That the topic is created with."""

    def compression(self, config: BrokerConfig) -> int: ...

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        """How long replies wait for a commit."""


class CoordinatorRuntime(Generic[C]):
    def __init__(
        self,
        kind: CoordinatorKind[C],
        runtime: Runtime,
        *,
        metadata: ClusterMetadata,
        has_lease: Callable[[], bool],
    ) -> None:
        """`has_lease`: whether the controller cannot have given to others what is led here."""
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
        #: Of the topic, as the image of this moment has it; None: to be looked up.
        self._partition_count: int | None = None
        #: By partition: what this broker leads, loaded or not.
        self._shards: dict[int, Shard[C]] = {}
        #: By partition: what this broker leads and could not load.
        self._unreadable: dict[int, Shard[C]] = {}
        self._may_load = asyncio.Semaphore(LOADS_AT_ONCE)
        #: Held by the decision whose long work is being done.
        self._long_work = asyncio.Lock()
        self._load_seconds = LOAD_SECONDS.make_recorder()
        self._requests = 0

    # ── which coordinator ────────────────────────────────────────────────────────────────────

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
        """The partition of the internal topic that `key` belongs to, if it is coordinated here."""
        return self._shard(self.partition_of(key)).partition

    def leads(self, index: int, epoch: Epoch) -> bool:
        """Whether the leadership of that epoch, in which something was decided, goes on."""
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
        # What is only read is answered without asking the replicas: a broker that was cut off would
        # tell what was true before another took its place.
        if len(shard.partition.assignment.replicas) > 1 and not self._has_lease():
            raise NotCoordinator(f"another broker may lead {self.topic}-{index} by now")
        return shard

    def _is_appointed(self, index: int) -> bool:
        """Whether the metadata says that this broker leads the partition: its log may have to be
        made or opened first. Clients that were sent here need not look for another."""
        topic = self._metadata.image.topic(self.topic)
        state = None if topic is None else topic.partitions.get(index)
        return (
            state is not None
            and state.leader == self._metadata.config.node_id
            and self._has_lease()
        )

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    def ask_now(
        self, key: str, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message | Awaitable[Message]:
        """As `ask`, without a task or a future where the reply is there at once."""
        return self.ask_partition(self.partition_of(key), decide)

    def ask_partition(
        self, index: int, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message | Awaitable[Message]:
        """As `ask_now`, where it is known whose the question is."""
        self._requests += 1
        try:
            return self._shard(index).ask(decide)
        except NeedsLongWork as work:
            return self._ask_after(work, index, decide)

    async def _ask_after(
        self, work: NeedsLongWork, index: int, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message:
        """One such work at a time, so that however many there are everybody else has every second
        turn of the loop."""
        async with self._long_work:
            for _ in work.pieces:
                await asyncio.sleep(0)
        found = self.ask_partition(index, decide)
        return found if isinstance(found, Message) else await found

    def ask_alone(
        self, key: str, decide: Callable[[C, Ticket, int], CoordinatorResult]
    ) -> Message | Awaitable[Message] | None:
        """As `ask_now` if nothing but this broker's log has to have what is decided. None, and
        nothing is decided: others coordinate it, or have replicas to be waited for."""
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
        """The reply of the core that `key` belongs to. Raises NotCoordinator, CoordinatorLoading,
        CoordinatorNotAvailable, and what the decision raises."""
        found = self.ask_now(key, decide)
        if isinstance(found, Message):
            return found
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await found
        except TimeoutError:
            raise CoordinatorNotAvailable(f"no response within {timeout_ms} ms") from None

    async def ask_every(self, decide: Callable[[C, Ticket, int], CoordinatorResult]) -> list[Any]:
        """The replies of all partitions led here. Raises CoordinatorLoading if one is not loaded:
        an answer without it would not be true."""
        indexes = sorted(self._shards)
        for index in indexes:
            self._shard(index)
        found = [self.ask_partition(index, decide) for index in indexes]
        try:
            return [one if isinstance(one, Message) else await one for one in found]
        finally:
            for one in found:
                if inspect.iscoroutine(one):
                    one.close()

    def loaded_partitions(self) -> list[int]:
        """Those that `ask_every` asks."""
        return sorted(self._shards)

    def append_marker(self, index: int, end: TransactionEnd) -> Offset:
        """Ends a producer's transaction in a partition of this topic; returns the end of the log,
        to be committed. Raises what `ask` does, and what the log refuses."""
        try:
            return self._shard(index).append_marker(end)
        except LograftError as error:
            raise as_told(error) from None

    # ── told by the broker ───────────────────────────────────────────────────────────────────

    def on_role(self, partition: Partition) -> None:
        """The partition of this topic has a new role, or is ready to serve, or is gone."""
        index = partition.index
        unreadable = self._unreadable.get(index)
        if unreadable is not None:
            if unreadable.is_of(partition):
                return
            del self._unreadable[index]
        shard = self._shards.get(index)
        if shard is not None:
            if shard.is_of(partition):
                return
            if partition is not shard.partition and partition.leader is None:
                return  # of an older topic of this name
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
            async with self._may_load:
                began_ms = clock.mono_ms()
                count = None if shard.is_over else await self._replay(shard)
        except LograftError as error:
            if not shard.is_over:
                # As Kafka: this broker is no coordinator of it until it leads it again.
                said = "%s cannot be loaded: %s"
                LOGGER.error(said, partition.topic_partition, error, exc_info=error.__cause__)
                del self._shards[partition.index]
                self._unreadable[partition.index] = shard
                shard.close()
            return
        if count is None:
            return
        took_ms = clock.mono_ms() - began_ms
        self._load_seconds.observe(took_ms / 1000)
        level = logging.INFO if count else logging.DEBUG
        said = "%s: %d entries loaded in %d ms"
        LOGGER.log(level, said, partition.topic_partition, count, took_ms)
        for note in shard.core.load_notes():
            LOGGER.warning("%s: %s", partition.topic_partition, note)

    async def _replay(self, shard: Shard[C]) -> int | None:
        """From the start of the log to its end; returns how many entries there were. None: the
        leadership ended before."""
        partition = shard.partition
        log = partition.leader_log()
        offset, count = log.log_start_offset, 0
        while offset < log.end_offset:
            piece = partition.read(
                offset, bytes_max=LOAD_BYTES, bound=log.end_offset, at_least_one=True
            )
            if piece is None:
                break  # compaction has left nothing at the end
            for entry in read_log(self._kind.frames, await self._read(partition, piece)):
                if isinstance(entry, Passed):
                    offset = entry.next_offset
                else:
                    _replay_entry(shard.core, entry)
                count += 1
                if count % ENTRIES_PER_TURN == 0:
                    await asyncio.sleep(0)
                if shard.is_over:
                    return None
        # Nothing was appended since the last look at the end: nothing was awaited.
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
        """By partition: what this broker leads, loaded or not."""
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


def _replay_entry(core: Core, entry: Written | Ended) -> None:
    if isinstance(entry, Ended):
        core.replay_marker(entry.producer_id, entry.producer_epoch, committed=entry.committed)
        return
    record, offset, producer_id, producer_epoch = entry
    try:
        core.replay(record, offset=offset, producer_id=producer_id, producer_epoch=producer_epoch)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # Whoever wrote what no coordinator writes must not keep the whole node from starting.
        raise UnreadableRecord(f"the record at offset {offset} is invalid") from error


def key_hash(key: str) -> int:
    """Not negative; Java's hash of a string, which counts in 16-bit units."""
    if len(key) > KEY_LENGTH_MAX:
        return 0
    return _remembered_hash(key) if len(key) <= KEY_LENGTH_REMEMBERED else _hash(key)


def _hash(key: str) -> int:
    units = memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFF_FFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


_remembered_hash = lru_cache(maxsize=1 << 14)(_hash)
