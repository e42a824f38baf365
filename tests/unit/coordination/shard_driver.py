"""A minimal runtime: appends to a list, replays, and sends replies immediately."""

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from lograft.coordination.group_shard import GroupShard
from lograft.coordination.types import (
    CoordinatorContext,
    CoordinatorResult,
    NeedsLongWork,
    Record,
    Reply,
    Ticket,
)
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.settings.broker import broker_config
from lograft.model.types import Offset
from lograft.wire.message import Message
from lograft.wire.record_frames import (
    GROUPS,
    UnknownRecord,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

#: Features that every node must support.
NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
}
WALL_OFFSET_MS = 1_700_000_000_000


class Named(Ticket):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Entry(NamedTuple):
    """A record in the log, or a transaction marker."""

    key: bytes
    value: bytes | None
    producer: tuple[int, int] = (-1, -1)
    #: The offset of a marker.
    committed: bool | None = None


class ShardDriver:
    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.config = broker_config({**NODE, **(settings or {})})
        self.image = MetadataImage()
        self.now_ms = 0
        self.log: list[Entry] = []
        self.batch_sizes: list[int] = []
        #: The next append fails with this error.
        self.failure: ErrorCode | None = None
        self.ids = 0
        #: Replies of the last command or timer, and the records that it wrote.
        self.replies: list[tuple[str, Message]] = []
        self.written: list[Record] = []
        self.around = CoordinatorContext(
            config=lambda: self.config,
            image=lambda: self.image,
            wall_ms=lambda: self.now_ms + WALL_OFFSET_MS,
            new_uuid=self._new_uuid,
        )
        self.shard = GroupShard(self.around)

    def _new_uuid(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def ask(
        self, name: str, decide: Callable[[GroupShard, Ticket, int], CoordinatorResult]
    ) -> None:
        self.replies, self.written = [], []
        try:
            outcome = decide(self.shard, Named(name), self.now_ms)
        except NeedsLongWork as work:
            for _ in work.pieces:
                pass
            outcome = decide(self.shard, Named(name), self.now_ms)
        self.run(outcome)

    def run(self, outcome: CoordinatorResult) -> None:
        if outcome.records and self.failure is not None:
            code, self.failure = self.failure, None
            if outcome.on_failure is not None:
                self._give(outcome.on_failure(code))
            return
        if outcome.records:
            self.batch_sizes.append(len(outcome.records))
        for record in outcome.records:
            self.written.append(record)
            key = encode_coordinator_key(record.key)
            value = record.value
            bytes_ = (
                None if value is None else encode_coordinator_value(value, record.value_version)
            )
            self.log.append(Entry(key, bytes_, outcome.producer or (-1, -1)))
            self._replay(self.shard, self.log[-1], len(self.log) - 1)
        self._give(outcome.replies)
        if outcome.then is not None:
            self.run(outcome.then())
        self._run_due()

    def _give(self, replies: Sequence[Reply]) -> None:
        for ticket, message in replies:
            assert isinstance(ticket, Named)
            self.replies.append((ticket.name, message))

    def _run_due(self) -> None:
        next_ms = self.shard.next_deadline_ms()
        if next_ms is not None and next_ms <= self.now_ms:
            self.run(self.shard.on_time(self.now_ms))

    def pass_ms(self, amount_ms: int) -> None:
        self.replies, self.written = [], []
        end_ms = self.now_ms + amount_ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self._run_due()
        self.now_ms = end_ms

    def fail_over(self) -> None:
        """Another broker becomes the coordinator: only the log remains."""
        self.replies, self.written = [], []
        self._give(self.shard.on_unloaded())
        self.shard = GroupShard(self.around)
        for offset, entry in enumerate(self.log):
            self._replay(self.shard, entry, offset)
        self.run(self.shard.on_loaded(self.now_ms))

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A marker is written."""
        self.log.append(Entry(b"", None, (producer_id, 0), committed))
        self._replay(self.shard, self.log[-1], len(self.log) - 1)

    @staticmethod
    def _replay(shard: GroupShard, entry: Entry, offset: int) -> None:
        producer_id, producer_epoch = entry.producer
        if entry.committed is not None:
            shard.replay_marker(producer_id, producer_epoch, committed=entry.committed)
            return
        key = decode_coordinator_key(GROUPS, entry.key)
        assert not isinstance(key, UnknownRecord)
        value = None if entry.value is None else decode_coordinator_value(GROUPS, key, entry.value)
        assert not isinstance(value, UnknownRecord)
        shard.replay(
            Record(key, value),
            offset=Offset(offset),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    def set(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = broker_config({**NODE, **self.config.raw, **named})
