"""A runtime in miniature: appends to a list, replays, and hands out replies at once."""

from collections.abc import Callable, Sequence
from uuid import UUID

from lograft.coordination.group_shard import GroupShard
from lograft.coordination.types import Outcome, Record, Reply, Surroundings, Ticket
from lograft.metadata.image import MetadataImage
from lograft.model.broker_configs import broker_config
from lograft.model.errors import ErrorCode
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

#: What every node must have.
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


class ShardDriver:
    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.config = broker_config({**NODE, **(settings or {})})
        self.image = MetadataImage()
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        #: The next append fails with this.
        self.failure: ErrorCode | None = None
        self.ids = 0
        #: Replies of the last command or moment, and the records it wrote.
        self.replies: list[tuple[str, Message]] = []
        self.written: list[Record] = []
        self.around = Surroundings(
            config=lambda: self.config,
            image=lambda: self.image,
            wall_ms=lambda: self.now_ms + WALL_OFFSET_MS,
            new_uuid=self._new_uuid,
        )
        self.shard = GroupShard(self.around)

    def _new_uuid(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def ask(self, name: str, decide: Callable[[GroupShard, Ticket, int], Outcome]) -> None:
        self.replies, self.written = [], []
        self.run(decide(self.shard, Named(name), self.now_ms))

    def run(self, outcome: Outcome) -> None:
        if outcome.records and self.failure is not None:
            code, self.failure = self.failure, None
            if outcome.failed is not None:
                self._give(outcome.failed(code))
            return
        for record in outcome.records:
            self.written.append(record)
            key = encode_coordinator_key(record.key)
            value = record.value
            bytes_ = (
                None if value is None else encode_coordinator_value(value, record.value_version)
            )
            self.log.append((key, bytes_))
            self._replay(self.shard, key, bytes_, len(self.log) - 1)
        self._give(outcome.replies)
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
        """Another broker takes over: only the log remains."""
        self.replies, self.written = [], []
        self._give(self.shard.on_unloaded())
        self.shard = GroupShard(self.around)
        for offset, (key, value) in enumerate(self.log):
            self._replay(self.shard, key, value, offset)
        self.run(self.shard.on_loaded(self.now_ms))

    @staticmethod
    def _replay(shard: GroupShard, key: bytes, value: bytes | None, offset: int) -> None:
        decoded_key = decode_coordinator_key(GROUPS, key)
        assert not isinstance(decoded_key, UnknownRecord)
        decoded = None if value is None else decode_coordinator_value(GROUPS, decoded_key, value)
        assert not isinstance(decoded, UnknownRecord)
        shard.replay(Record(decoded_key, decoded), offset=Offset(offset))

    def set(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = broker_config({**NODE, **self.config.raw, **named})
