"""A seeded stream of requests, regular and hostile, against one node on a simulated machine.

Whatever it receives, the node responds in the right format, or closes the connection as its
protocol requires; it never fails internally, never returns UNKNOWN_SERVER_ERROR, and keeps what it
has acknowledged.
"""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from lograft.api.router import Session, served_apis
from lograft.broker.quorum.metadata_loading import load_metadata
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection, EncodedResponse, PendingReply
from lograft.model.types import Offset
from lograft.storage.log_dirs import read_meta_properties
from lograft.wire.apis import ApiSpec, request_class
from lograft.wire.codec import read
from lograft.wire.errors import MalformedMessage, WireError
from lograft.wire.headers import frame_request, read_request_header
from lograft.wire.message import Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.fetch import FetchResponse
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.fuzz.hostile_batches import HostileBatches
from tests.fuzz.hostile_requests import (
    DATA_APIS,
    KEPT,
    TOYS,
    HostileRequests,
    with_unknown_tags,
)
from tests.fuzz.ledger import Ledger
from tests.fuzz.simulated_node import Complaints, SimulatedNode, read_response
from tests.properties.mutations import mutate
from tests.unit.broker.bench import decoded

#: Requests in flight; as many connections send in turn.
WAITING_MAX = 6
HEALING_S = 10.0
CALM_EVERY = 10
LEAP_CHANCE = 0.01
LEAP_S = 70.0
#: The only error that requests may cause in the log.
NOT_COMPACTED = "stopped compacting"
CALM_PRODUCE_VERSION = 9
CLIENT_IDS = (None, "", "fuzz", "__admin_client", "grün\n", "c" * 32767)
#: Settings that keep records whatever the defaults of the cluster become.
KEEP = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "segment.bytes": "1048600",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
}
KEPT_SETTINGS: dict[str, dict[str, str]] = {
    "kept": {},
    "kept-lz4": {"compression.type": "lz4"},
    "kept-time": {"message.timestamp.type": "LogAppendTime"},
    # Keys are validated, but nothing is compacted away.
    "kept-keys": {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(2**63 - 1),
        "max.compaction.lag.ms": str(2**63 - 1),
    },
    "kept-flushed": {"flush.messages": "1"},
}

#: Compacted all the time, while it is written, changed and deleted.
COMPACTED_TOY = "toy-2"
TOY_SETTINGS: dict[str, dict[str, str]] = {
    COMPACTED_TOY: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "segment.ms": "1000",
    },
}


class Sent(NamedTuple):
    frame: bytes
    what: str
    #: As the server will read it; None if it will not.
    request: Message | None
    key: int
    version: int
    correlation_id: int
    #: Not corrupted: a closed connection needs a better reason than the frame's format.
    well_formed: bool


class Campaign:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random(f"campaign {seed}")
        self.node = SimulatedNode(seed, auto_create_partitions_enable="true")
        self.ledger = Ledger()
        self.answers = 0
        self.refused = 0
        self._complaints = Complaints()
        self._recent: deque[str] = deque(maxlen=WAITING_MAX + 2)
        self._waiting: dict[asyncio.Task[EncodedResponse | None], Sent] = {}
        chance = self._chance
        self._batches = HostileBatches(chance, wall_ms=self.node.machine.clock.wall_ms)
        self._requests = HostileRequests(
            f"requests {seed}",
            fullness=chance.choice((0.5, 0.8, 0.95)),
            wildness=chance.choice((0.02, 0.1, 0.3)),
            batches=self._batches,
            topic_ids=self._topic_ids,
        )
        self._spoils = chance.choice((0.0, 0.2, 0.5))
        self._served: list[tuple[str, ApiSpec]] = [
            (role, spec) for role in ("broker", "controller") for spec in served_apis(role)
        ]
        self._weights = [8 if spec.key in (0, 1) else 1 for _, spec in self._served]

    def run(self, requests: int) -> None:
        """Sends that many requests, with random APIs and versions."""
        drawn = self._chance.choices(self._served, self._weights, k=requests)
        self._run([(role, spec, self._version_of(spec)) for role, spec in drawn])

    def run_every_version(self, times: int) -> None:
        """Sends every served API and version `times` times, in random order."""
        targets = [
            (role, spec, version)
            for role, spec in self._served
            for version in range(spec.min_version, spec.max_version + 1)
        ]
        targets *= times
        self._chance.shuffle(targets)
        self._run(targets)

    def _version_of(self, spec: ApiSpec) -> int:
        return self._chance.randint(spec.min_version, spec.max_version)

    def _run(self, targets: list[tuple[str, ApiSpec, int]]) -> None:
        with self._complaints:
            try:
                self.node.start()
                self.node.run(self._play(targets))
                self.ledger.check(self.node)
                self._check_restart()
                self._check()
            except Exception as error:
                recent = "\n  ".join(self._recent)
                raise AssertionError(
                    f"replay with LOGRAFT_FUZZ_SEED={self.seed}: {error!r}\n"
                    f"last requests:\n  {recent}"
                ) from error
            finally:
                self.node.loop.close()

    def _topic_ids(self, names: Sequence[str]) -> list[UUID]:
        known = self.node.image.topic_ids
        return [known[name] for name in names if name in known]

    def _check(self) -> None:
        for line in self._complaints.lines:
            # Garbage that a topic accepted before it became compacted.
            assert line.partition("\n")[0].split(":")[0].endswith(NOT_COMPACTED), line

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    async def _play(self, targets: list[tuple[str, ApiSpec, int]]) -> None:
        await self._create_topics()
        sessions: dict[str, list[Session]] = {
            role: [self.node.session(role) for _ in range(3)] for role in ("broker", "controller")
        }
        for step, (role, spec, version) in enumerate(targets):
            sent = self._next_frame(spec, version, step)
            self._recent.append(f"{step}: {sent.what} {sent.frame[:200].hex()}")
            slot = self._chance.randrange(3)
            if not self._deliver(sessions[role][slot], sent):
                sessions[role][slot] = self.node.session(role)
            await self._let_time_pass()
            if step % CALM_EVERY == 0:
                await self._be_calm()
            if self._chance.random() < LEAP_CHANCE:
                # Long enough for housekeeping, compaction, and the removal of deleted files.
                await asyncio.sleep(LEAP_S)
            self._check()
            self.node.check()
        for _ in range(WAITING_MAX):
            await self._let_time_pass()
        await self._dismiss(list(self._waiting))
        # A request may have unregistered the broker: it registers again by itself.
        await asyncio.sleep(HEALING_S)
        self._check()

    async def _be_calm(self) -> None:
        """A well-behaved client produces, whatever the others do."""
        name = self._chance.choice(KEPT)
        partition = self.node.broker.partitions.get(name, 0)
        assert partition is not None, name
        if not partition.leads:
            # A request has unregistered the broker, as the protocol allows: it registers again.
            return
        response = await self._produce(name)
        if partition.leads:
            assert not response.responses[0].partition_responses[0].error_code, response
        # The compacted topic gets enough records to be compacted; they are not checked.
        await self._produce(COMPACTED_TOY)

    async def _produce(self, name: str) -> ProduceResponse:
        data = PartitionProduceData(index=0, records=self._batches.honest_with_keys())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=name, partition_data=[data])],
        )
        response = await self.node.ask(request, CALM_PRODUCE_VERSION, ProduceResponse)
        self.ledger.note(self.node, request, response)
        return response

    async def _create_topics(self) -> None:
        settings = {name: KEEP | own for name, own in KEPT_SETTINGS.items()}
        settings |= {name: TOY_SETTINGS.get(name, {}) for name in TOYS}
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=2,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
                )
                for name, configs in settings.items()
            ]
        )
        response = await self.node.ask(request, 7, CreateTopicsResponse)
        assert [topic.error_code for topic in response.topics] == [0] * len(settings), response

    def _next_frame(self, spec: ApiSpec, version: int, step: int) -> Sent:
        chance = self._chance
        request = self._requests.request(request_class(spec.key), version)
        client_id = chance.choice(CLIENT_IDS)
        frame = frame_request(request, version, correlation_id=step, client_id=client_id)[4:]
        what = f"{spec.name} v{version}"
        # Only if the last byte is the count of tags, and not the end of a known one.
        has_tags = any(field.is_tagged for field in request.FIELDS)
        if version >= spec.flexible_since and not has_tags and chance.random() < 0.1:
            frame = with_unknown_tags(frame, chance)
        well_formed = chance.random() >= self._spoils
        if not well_formed:
            frame = self._spoiled(frame)
            what += " spoiled"
        return _as_read(frame, what, well_formed)

    def _spoiled(self, frame: bytes) -> bytes:
        chance = self._chance
        match chance.randrange(8):
            case 0:
                return frame[: chance.randrange(len(frame))]
            case 1:
                return frame + chance.randbytes(chance.randint(1, 30))
            case 2:
                wrong_version = chance.choice((-1, 0, 3, 9, 20, 32767)).to_bytes(2, signed=True)
                return frame[:2] + wrong_version + frame[4:]
            case 3:
                wrong_key = chance.choice((-1, 4, 7, 93, 1000, 32767)).to_bytes(2, signed=True)
                return wrong_key + frame[2:]
            case 4:
                return chance.randbytes(chance.randrange(100))
            case 5:
                # Not an API that deletes: the frame may name topics that must be kept.
                return chance.choice(sorted(DATA_APIS)).to_bytes(2) + frame[2:]
            case _:
                return mutate(frame, chance)

    def _deliver(self, session: Session, sent: Sent) -> bool:
        """Returns False if this closes the connection."""
        buffer = bytearray(sent.frame)
        try:
            reply = session.handle_frame(memoryview(buffer))
        except (WireError, CloseConnection) as error:
            if sent.well_formed and isinstance(error, MalformedMessage):
                raise
            self.refused += 1
            return False
        finally:
            # The connection reads the next frame into the same buffer.
            buffer[:] = b"\xee" * len(buffer)
        reported = decoded(reply)
        if isinstance(reported, EncodedResponse):
            self._take(sent, reported)
        elif isinstance(reported, PendingReply):
            task = asyncio.get_running_loop().create_task(_awaited(reported))
            self._waiting[task] = sent
        return True

    async def _let_time_pass(self) -> None:
        """Responses arrive, or their clients give up and disconnect."""
        chance = self._chance
        if self._waiting and (len(self._waiting) >= WAITING_MAX or chance.random() < 0.5):
            await asyncio.wait(self._waiting, timeout=chance.choice((0.001, 0.05, 1.0)))
            if len(self._waiting) >= WAITING_MAX and not any(t.done() for t in self._waiting):
                await self._dismiss([chance.choice(list(self._waiting))])
        for task in [task for task in self._waiting if task.done()]:
            sent = self._waiting.pop(task)
            if task.cancelled():
                continue
            response = task.result()
            if response is not None:
                self._take(sent, response)

    async def _dismiss(self, impatient: list[asyncio.Task[EncodedResponse | None]]) -> None:
        for task in impatient:
            task.cancel()
        if impatient:
            await asyncio.wait(impatient)

    # ── responses ──────────────────────────────────────────────────────────────────────────────

    def _take(self, sent: Sent, answer: EncodedResponse) -> None:
        self.answers += 1
        version = sent.version
        if sent.request is None:
            # Only ApiVersions responds to an unknown version, in version 0 (KIP-511).
            assert sent.key == 18, sent.what
            version = 0
        response = read_response(answer, sent.key, version, sent.correlation_id)
        assert not has_code(response, ErrorCode.UNKNOWN_SERVER_ERROR), (sent.what, response)
        if sent.request is not None:
            self.ledger.note(self.node, sent.request, response)
        if isinstance(response, FetchResponse) and response.session_id:
            self._requests.fetch_sessions.append(response.session_id)

    # ── restart ──────────────────────────────────────────────────────────────────────────────

    def _check_restart(self) -> None:
        """Stopped or killed, the node starts again with the same metadata and the same records."""
        broker = self.node.broker
        self.node.stop()
        self._check()
        rebuilt = self._image_on_disk()
        assert rebuilt == broker.image, "the metadata log differs from the node's image"
        self.node.start()
        self.ledger.check(self.node)
        assert self.node.image.topic_ids == broker.image.topic_ids
        assert self.node.image.configs == broker.image.configs
        assert set(KEPT) <= set(self.node.image.topic_ids)
        self.node.kill()
        self.node.start()
        self.ledger.check(self.node)
        assert self.node.image.topic_ids == broker.image.topic_ids
        self.node.stop()

    def _image_on_disk(self) -> MetadataImage:
        config = self.node.config
        disk = self.node.machine.boot().disk
        meta = read_meta_properties(disk, config.metadata_log_dir)
        assert meta is not None
        assert meta.directory_id is not None
        loaded = load_metadata(
            disk, config, directory_id=meta.directory_id, now_ms=self.node.machine.clock.wall_ms()
        )
        image = MetadataImage()
        if loaded.snapshot is not None and loaded.snapshot.id.end_offset > 0:
            snapshot = loaded.snapshot
            last = Offset(snapshot.id.end_offset - 1)
            image.apply(snapshot.records, offset=last, epoch=snapshot.id.epoch)
        for batch in loaded.tail:
            image.apply(batch.records, offset=batch.last_offset, epoch=batch.epoch)
        self.node.machine.exit()
        return image


async def _awaited(reply: PendingReply) -> EncodedResponse | None:
    try:
        return await reply.response
    except CloseConnection:
        return None


def _as_read(frame: bytes, what: str, well_formed: bool) -> Sent:
    """Reads a corrupted frame as the server will: it may have become another valid one."""
    try:
        header = read_request_header(frame)
        request, _ = read(
            request_class(header.api_key), header.api_version, frame, header.body_position
        )
    except WireError:
        key = int.from_bytes(frame[:2], signed=True)
        correlation_id = int.from_bytes(frame[4:8], signed=True)
        return Sent(frame, what, None, key, 0, correlation_id, well_formed)
    return Sent(
        frame,
        what,
        request,
        header.api_key,
        header.api_version,
        header.correlation_id,
        well_formed,
    )


def has_code(message: Message, code: int) -> bool:
    """Returns whether a message has the error code anywhere."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code") and value == code:
            return True
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, Message) and has_code(part, code) for part in parts):
            return True
    return False
