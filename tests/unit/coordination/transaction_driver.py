"""A transaction shard with a log and a minimal runtime; every append is committed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

from lograft.coordination.transaction import Partitions
from lograft.coordination.transaction_shard import TransactionShard, WriteMarkers
from lograft.coordination.types import CoordinatorContext, CoordinatorResult, Record, Ticket
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import TRANSACTION_VERSION
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import broker_config
from lograft.model.types import Epoch, Offset
from lograft.wire.message import Message
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.record_frames import (
    TRANSACTIONS,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

M = TypeVar("M", bound=Message)

CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:0,CONTROLLER://:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/x",
}
T1 = "payments"
V2 = 2
#: Longer logs are not replayed after every step.
REPLAYED_MAX = 50


class World:
    def __init__(self, *, version: int = V2, config: dict[str, str] | None = None) -> None:
        self.image = MetadataImage()
        self.image.features[TRANSACTION_VERSION] = version
        self.config = broker_config(CONFIG | (config or {}))
        self.now_ms = 1_000_000
        self.next_producer_id = 1000
        self.has_producer_ids = True
        self.log: list[tuple[bytes, bytes | None]] = []
        self.effects: list[WriteMarkers] = []
        self.epoch = 0
        self.shard = self._load()

    def _load(self) -> TransactionShard:
        shard = TransactionShard(
            CoordinatorContext(
                lambda: self.config, lambda: self.image, lambda: self.now_ms, lambda: UUID(int=7)
            ),
            epoch=Epoch(self.epoch),
            new_producer_id=self._new_producer_id,
        )
        for offset, entry in enumerate(self.log):
            shard.replay(_decoded(*entry), offset=Offset(offset))
        return shard

    def _new_producer_id(self) -> int:
        if not self.has_producer_ids:
            raise Rejected(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "None at hand.")
        self.next_producer_id += 1
        return self.next_producer_id

    def crash(self, *, compact: bool = False) -> None:
        """Another broker becomes the coordinator, with only the log."""
        if compact:
            last = dict(self.log)
            self.log = [(key, value) for key, value in last.items() if value is not None]
        self.epoch += 1
        self.shard = self._load()
        self.apply(self.shard.on_loaded(self.now_ms))

    # ── the driver ───────────────────────────────────────────────────────────────────────────

    def apply(self, outcome: CoordinatorResult) -> None:
        for record in outcome.records:
            key = encode_coordinator_key(record.key)
            value = None
            if record.value is not None:
                value = encode_coordinator_value(record.value, record.value_version)
            self.log.append((key, value))
            self.shard.replay(record, offset=Offset(len(self.log) - 1))
        if len(self.log) <= REPLAYED_MAX:
            assert self.shard.transactions == self._load().transactions, "replay tells the same"
        for effect in outcome.effects:
            assert isinstance(effect, WriteMarkers)
            self.effects.append(effect)

    def ask(self, answer: type[M], decide: Callable[[Ticket], CoordinatorResult]) -> M:
        ticket = Ticket()
        outcome = decide(ticket)
        self.apply(outcome)
        ((given, reply),) = outcome.replies
        assert given is ticket
        assert isinstance(reply, answer)
        return reply

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        for _ in range(100):
            if self.shard.next_deadline_ms() > self.now_ms:
                return
            self.apply(self.shard.on_time(self.now_ms))
        raise AssertionError("it never has enough")

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def init(
        self, name: str = T1, *, producer_id: int = -1, epoch: int = -1, **more: Any
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=more.pop("timeout_ms", 60_000),
            producer_id=producer_id,
            producer_epoch=epoch,
            **more,
        )
        return self.ask(
            InitProducerIdResponse, lambda ticket: self.shard.init_producer_id(ticket, request)
        )

    def add(
        self,
        producer_id: int,
        epoch: int,
        partitions: Partitions,
        *,
        name: str = T1,
        version: int = V2,
    ) -> dict[tuple[str, int], int]:
        return self._partitions(
            lambda ticket: self.shard.add_partitions(
                ticket,
                name,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=partitions,
                client_version=version,
            )
        )

    def verify(
        self, producer_id: int, epoch: int, partitions: Partitions, *, name: str = T1
    ) -> dict[tuple[str, int], int]:
        return self._partitions(
            lambda ticket: self.shard.verify_partitions(
                ticket,
                name,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=partitions,
            )
        )

    def _partitions(
        self, decide: Callable[[Ticket], CoordinatorResult]
    ) -> dict[tuple[str, int], int]:
        ticket = Ticket()
        outcome = decide(ticket)
        self.apply(outcome)
        ((_, reply),) = outcome.replies
        data: Any = SimpleNamespace(reply=reply)
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in data.reply.topic_results
            for each in topic.results_by_partition
        }

    def end(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool = True,
        name: str = T1,
        version: int = V2,
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        return self.ask(
            EndTxnResponse,
            lambda ticket: self.shard.end_transaction(ticket, request, client_version=version),
        )

    def written(self, *effects: WriteMarkers) -> None:
        """Every partition has the markers of these transactions, by default of all."""
        done = effects or tuple(self.effects)
        for effect in done:
            self.effects.remove(effect)
        self.ask(EndTxnResponse, lambda ticket: self.shard.markers_written(ticket, done))

    def state(self, name: str = T1) -> str:
        found = self.shard.transactions.get(name)
        if found is None:
            return "none"
        return f"{found.state.text} {found.producer_id}/{found.epoch}"


def _decoded(key_bytes: bytes, value_bytes: bytes | None) -> Record:
    key = decode_coordinator_key(TRANSACTIONS, key_bytes)
    assert isinstance(key, Message)
    if value_bytes is None:
        return Record(key, None)
    value = decode_coordinator_value(TRANSACTIONS, key, value_bytes)
    assert isinstance(value, Message)
    return Record(key, value, 1)
