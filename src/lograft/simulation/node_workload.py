"""Clients of a simulated node: they produce, poll, list and delete, and record a history."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.simulation.client import ErrorResponse, NotSent, OutcomeUnknown
from lograft.simulation.history import History
from lograft.simulation.routing import Requests
from lograft.wire.batches import Record, build_batch, check_crc, iterate_headers, read_records
from lograft.wire.errors import MalformedMessage
from lograft.wire.messages import create_topics as creating
from lograft.wire.messages import delete_records as deleting
from lograft.wire.messages import fetch as fetching
from lograft.wire.messages import list_offsets as listing
from lograft.wire.messages import produce as producing
from lograft.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse

TIMEOUT_MS: Final = 3_000
LATEST: Final = -1
EARLIEST: Final = -2
PRODUCE_VERSIONS: Final = (3, 7, 9, 12, 13)
FETCH_VERSIONS: Final = (4, 7, 11, 12, 13, 16)
UNPACKED_BYTES_MAX: Final = 1 << 20
#: Error codes of requests that had no effect and can be sent again.
REJECTED: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.BROKER_NOT_AVAILABLE,
})  # fmt: skip


@dataclass(slots=True)
class TopicPlan:
    name: str
    partitions: int
    configs: dict[str, str]
    replication_factor: int = 1
    topic_id: UUID = field(default_factory=lambda: UUID(int=0))

    @property
    def is_durable(self) -> bool:
        return self.configs.get("flush.messages") == "1"

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"


class Reader:
    """Fetches from a partition, for consumers and for the final read."""

    def __init__(self, client: Requests, topic: TopicPlan, partition: int, version: int) -> None:
        self.client = client
        self.topic = topic
        self.partition = partition
        self._version = version
        #: Epoch and end offset of the last batch read, sent with a fetch from that offset.
        self._last: tuple[int, int] = (-1, -1)
        #: As in clients that do not detect truncation. Then only the offsets of fetches differ.
        self.omits_epoch = False

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.partition}"

    async def fetch(
        self, offset: int, *, bytes_max: int, wait_ms: int, isolation_level: int = 0
    ) -> tuple[fetching.PartitionData, list[tuple[int, str]], int]:
        """Returns the partition's response, its records from `offset` on, and the number of bad
        CRCs."""
        position = fetching.FetchPartition(
            partition=self.partition,
            current_leader_epoch=self.client.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=self._last[0] if self._last[1] == offset else -1,
            partition_max_bytes=bytes_max,
        )
        if self._version < 12 or self.omits_epoch:
            position.last_fetched_epoch = -1
        request = fetching.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=isolation_level,
            topics=[
                fetching.FetchTopic(
                    topic=self.topic.name, topic_id=self.topic.topic_id, partitions=[position]
                )
            ],
        )
        response = await self.client.request(
            request, self._version, fetching.FetchResponse, timeout_ms=TIMEOUT_MS
        )
        if response.error_code or not response.responses:
            raise NotSent(f"fetch was rejected with {response.error_code}")
        data = response.responses[0].partitions[0]
        if data.error_code:
            self.client.mark_stale()
        records, bad = self._records(data, offset)
        return data, records, bad

    def _records(
        self, data: fetching.PartitionData, offset: int
    ) -> tuple[list[tuple[int, str]], int]:
        """Returns the records except those of aborted transactions, which the response to a
        read_committed fetch lists, and the number of bad CRCs."""
        records: list[tuple[int, str]] = []
        bad = 0
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
        )
        aborting: set[int] = set()
        raw = b"" if data.records is None else bytes(data.records)  # type: ignore[arg-type]
        try:
            for position, header in iterate_headers(raw):
                if not check_crc(raw, position, header.size_bytes):
                    bad += 1
                    continue
                self._last = (header.leader_epoch, header.last_offset + 1)
                while aborted and aborted[0][0] <= header.last_offset:
                    aborting.add(aborted.pop(0)[1])
                if header.is_control:
                    # The marker that ends the transaction.
                    aborting.discard(header.producer_id)
                    continue
                if header.is_transactional and header.producer_id in aborting:
                    continue
                batch = raw[position : position + header.size_bytes]
                for record in read_records(batch, bytes_max=UNPACKED_BYTES_MAX):
                    if record.offset >= offset:
                        records.append((record.offset, (record.value or b"").decode()))
        except MalformedMessage:
            bad += 1
        return records, bad

    @property
    def next_offset(self) -> int:
        """The offset after the last complete batch read, including control batches."""
        return self._last[1]


async def read_partition(
    reader: Reader,
    *,
    history: History,
    report_violation: Callable[[str, str], None],
    isolation_level: int = 0,
) -> None:
    """Reads a partition from its start to its high watermark and records it as `final`, or, for
    committed records after all transactions have ended, as `final_committed`."""
    admin = Admin(reader.client, history=history, random=Random(0))
    # A newly elected leader may not know the high watermark yet: then fetches end early, and this
    # request is rejected.
    end = await admin.list_offset(reader.topic, reader.partition, LATEST)
    position = await admin.list_offset(reader.topic, reader.partition, EARLIEST)
    bad_crcs = 0
    all_records: list[tuple[int, str]] = []
    while True:
        data, records, bad = await reader.fetch(
            position, bytes_max=1 << 20, wait_ms=0, isolation_level=isolation_level
        )
        bad_crcs += bad
        if data.error_code:
            raise NotSent(f"{reader.name} responded with {data.error_code}")
        all_records += records
        if position >= data.high_watermark or (not data.records and not bad):
            break
        position = max(reader.next_offset, position)
    if isolation_level and data.last_stable_offset < data.high_watermark:
        raise NotSent(
            f"the last stable offset of {reader.name} is {data.last_stable_offset}, below its high"
            f" watermark {data.high_watermark}"
        )
    if data.high_watermark < end:
        raise NotSent(
            f"the new leader of {reader.name} has high watermark {data.high_watermark}, below {end}"
        )
    if position < data.high_watermark:
        report_violation("D5", f"{reader.name}: read only {position} of {data.high_watermark}")
    f = "final_committed" if isolation_level else "final"
    history.record("final", "invoke", f, tp=reader.name, offset=0)
    history.record(
        "final", "ok", f, records=all_records, hw=data.high_watermark,
        log_start=data.log_start_offset, bad_crc=bad_crcs,
    )  # fmt: skip


class Producer:
    """Sends one record at a time; an idempotent producer retries until the outcome is known."""

    def __init__(
        self,
        name: str,
        client: Requests,
        topic: TopicPlan,
        partition: int,
        *,
        history: History,
        random: Random,
        idempotent: bool,
    ) -> None:
        self._name = name
        self._client = client
        self._topic = topic
        self._partition = partition
        self._tp = f"{topic.name}-{partition}"
        self._history = history
        self._random = random
        self._idempotent = idempotent
        self._acks = -1 if idempotent else random.choice((-1, -1, 1))
        self._version = random.choice(PRODUCE_VERSIONS)
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._sent = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.choice((0, 0.001, 0.02, 0.3)))
            if self._idempotent and self._producer_id < 0 and not await self._get_id():
                continue
            self._sent += 1
            await self._send(f"{self._name}-{self._sent}")

    async def _get_id(self) -> bool:
        try:
            response = await self._client.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
                self._random.choice((0, 2, 4)),
                InitProducerIdResponse,
                timeout_ms=TIMEOUT_MS,
            )
        except (NotSent, OutcomeUnknown):
            await asyncio.sleep(0.2)
            return False
        if response.error_code:
            return False
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._sequence = 0
        return True

    async def _send(self, uid: str) -> None:
        arguments = {"tp": self._tp, "uid": uid, "acks": self._acks}
        arguments["durable"] = self._topic.is_durable and self._acks == -1
        if self._idempotent:
            arguments |= {"pid": self._producer_id, "seq": self._sequence}
        attempt = 0
        while True:
            self._history.record(self._name, "invoke", "send", **arguments, retry=attempt > 0)
            attempt += 1
            outcome = await self._attempt(uid)
            if outcome == "ok":
                self._sequence += 1
            elif self._idempotent and outcome in ("unknown", "rejected"):
                await asyncio.sleep(self._random.choice((0.01, 0.2, 1)))
                continue
            elif self._idempotent:
                # The broker has lost our earlier batches or never had them: get a new producer ID.
                self._producer_id = -1
            return

    async def _attempt(self, uid: str) -> str:
        try:
            data = await self._produce(uid)
        except NotSent as error:
            self._history.record(self._name, "fail", "send", error=str(error))
            return "rejected"
        except OutcomeUnknown as error:
            self._history.record(self._name, "info", "send", error=str(error))
            return "unknown"
        if data.error_code == ErrorCode.NONE:
            self._history.record(self._name, "ok", "send", offset=data.base_offset)
            return "ok"
        if data.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._history.record(self._name, "info", "send", error="duplicate of an old batch")
            return "ok"
        # A storage error may occur after the write.
        is_certain = data.error_code not in (
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        kind = "fail" if is_certain else "info"
        self._history.record(self._name, kind, "send", error=data.error_code)  # type: ignore[arg-type]
        return "rejected" if data.error_code in REJECTED else "failed" if is_certain else "unknown"

    async def _produce(self, uid: str) -> producing.PartitionProduceResponse:
        batch = build_batch(
            [Record(0, 1_767_225_600_000 + self._sent, b"k", uid.encode())],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequence if self._idempotent else -1,
            compression=self._random.choice((0, 0, 0, 1, 4)),
        )
        request = producing.ProduceRequest(
            acks=self._acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                producing.TopicProduceData(
                    name=self._topic.name,
                    topic_id=self._topic.topic_id,
                    partition_data=[
                        producing.PartitionProduceData(index=self._partition, records=batch)
                    ],
                )
            ],
        )
        response = await self._client.request(
            request, self._version, producing.ProduceResponse, timeout_ms=TIMEOUT_MS
        )
        return response.responses[0].partition_responses[0]


class Consumer:
    """Polls an assigned partition forever, from the log start on."""

    def __init__(
        self,
        name: str,
        client: Requests,
        topic: TopicPlan,
        partition: int,
        *,
        history: History,
        random: Random,
        isolation_level: int = 0,
    ) -> None:
        self._name = name
        self._isolation_level = isolation_level
        self._tp = f"{topic.name}-{partition}"
        self._topic = topic
        self._partition = partition
        self._admin = Admin(client, history=history, random=random)
        self._reader = Reader(client, topic, partition, random.choice(FETCH_VERSIONS))
        self._history = history
        self._random = random
        self._position = 0
        #: Seconds between two polls.
        self.pauses: tuple[float, ...] = (0, 0.01, 0.1)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.choice(self.pauses))
            await self._poll()

    async def _poll(self) -> None:
        position = self._position
        self._history.record(
            self._name, "invoke", "poll", tp=self._tp, offset=position, iso=self._isolation_level
        )
        try:
            data, records, bad = await self._reader.fetch(
                position,
                bytes_max=self._random.choice((1, 500, 1 << 20)),
                wait_ms=500,
                isolation_level=self._isolation_level,
            )
        except (NotSent, OutcomeUnknown):
            self._history.record(self._name, "fail", "poll")
            await asyncio.sleep(0.1)
            return
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Deleted, or lost in a power loss without a promise: seek to the log start.
            self._history.record(self._name, "fail", "poll", error=data.error_code)
            try:
                self._position = await self._admin.list_offset(
                    self._topic, self._partition, EARLIEST
                )
            except (NotSent, OutcomeUnknown):
                pass
            return
        if data.error_code:
            self._history.record(self._name, "fail", "poll", error=data.error_code)
            await asyncio.sleep(0.05)
            return
        if data.diverging_epoch is not None:
            self._history.record(self._name, "fail", "poll", diverging=True)
            return
        self._history.record(
            self._name, "ok", "poll", records=records, hw=data.high_watermark,
            log_start=max(0, data.log_start_offset), bad_crc=bad,
        )  # fmt: skip
        if data.records:
            self._position = max(position, self._reader.next_offset)


class Admin:
    """Creates and deletes topics, lists offsets and deletes records."""

    def __init__(self, client: Requests, *, history: History, random: Random) -> None:
        self._client = client
        self._history = history
        self._random = random
        self._created = 0
        #: Whether each extra topic exists according to the responses; None if unknown.
        self.extras: dict[str, bool | None] = {}

    async def create(self, topic: TopicPlan) -> bool:
        request = creating.CreateTopicsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[
                creating.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[
                        creating.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ],
                )
            ],
        )
        response = await self._client.request(
            request, 7, creating.CreateTopicsResponse, timeout_ms=TIMEOUT_MS
        )
        result = response.topics[0]
        if result.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ErrorResponse(result.error_code)
        topic.topic_id = result.topic_id
        return result.error_code == 0

    def mark_stale(self) -> None:
        self._client.mark_stale()

    async def topic_names(self) -> dict[str, UUID]:
        response = await self._client.request(
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            12,
            MetadataResponse,
            timeout_ms=TIMEOUT_MS,
        )
        return {topic.name or "": topic.topic_id for topic in response.topics}

    async def churn(self) -> None:
        """Creates and deletes extra topics forever."""
        while True:
            await asyncio.sleep(self._random.uniform(0.05, 2))
            existing = [name for name, exists in self.extras.items() if exists]
            try:
                if existing and self._random.random() < 0.5:
                    await self._delete(self._random.choice(existing))
                else:
                    self._created += 1
                    await self._create_extra(f"extra{self._created}")
            except (NotSent, OutcomeUnknown):
                await asyncio.sleep(0.2)

    async def _create_extra(self, name: str, *, replication_factor: int = 1) -> None:
        self.extras[name] = None
        try:
            await self.create(TopicPlan(name, self._random.randint(1, 3), {}, replication_factor))
        except NotSent:
            self.extras[name] = False
            raise
        self.extras[name] = True

    async def _delete(self, name: str) -> None:
        self.extras[name] = None
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
        response = await self._client.request(
            request, 6, DeleteTopicsResponse, timeout_ms=TIMEOUT_MS
        )
        if response.responses[0].error_code == 0:
            self.extras[name] = False

    async def list_latest(
        self, topic: TopicPlan, partition: int, *, pauses_ms: tuple[int, int] = (50, 1_000)
    ) -> None:
        tp = f"{topic.name}-{partition}"
        name = f"lister-{tp}"
        while True:
            await asyncio.sleep(self._random.uniform(*pauses_ms) / 1000)
            self._history.record(name, "invoke", "list_offsets", tp=tp, at="latest")
            try:
                offset, epoch = await self.list_offset_and_epoch(topic, partition, LATEST)
            except (NotSent, OutcomeUnknown) as error:
                self._history.record(name, "fail", "list_offsets", error=str(error))
            else:
                self._history.record(name, "ok", "list_offsets", offset=offset, epoch=epoch)

    async def list_offset(self, topic: TopicPlan, partition: int, timestamp: int) -> int:
        return (await self.list_offset_and_epoch(topic, partition, timestamp))[0]

    async def list_offset_and_epoch(
        self, topic: TopicPlan, partition: int, timestamp: int
    ) -> tuple[int, int]:
        position = listing.ListOffsetsPartition(
            partition_index=partition,
            timestamp=timestamp,
            current_leader_epoch=self._client.leader_epoch,
        )
        request = listing.ListOffsetsRequest(
            replica_id=-1,
            topics=[listing.ListOffsetsTopic(name=topic.name, partitions=[position])],
        )
        response = await self._client.request(
            request, 7, listing.ListOffsetsResponse, timeout_ms=TIMEOUT_MS
        )
        result = response.topics[0].partitions[0]
        if result.error_code:
            self._client.mark_stale()
            raise NotSent(f"ListOffsets responded with {result.error_code}")
        return result.offset, self._client.leader_epoch

    async def delete_records(self, topic: TopicPlan, partition: int, step: int) -> None:
        """Deletes the oldest records from time to time, forever."""
        before = 0
        tp = f"{topic.name}-{partition}"
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 4))
            before += self._random.randint(1, step)
            self._history.record("deleter", "invoke", "delete", tp=tp, before=before)
            request = deleting.DeleteRecordsRequest(
                timeout_ms=TIMEOUT_MS,
                topics=[
                    deleting.DeleteRecordsTopic(
                        name=topic.name,
                        partitions=[
                            deleting.DeleteRecordsPartition(
                                partition_index=partition, offset=before
                            )
                        ],
                    )
                ],
            )
            try:
                response = await self._client.request(
                    request, 2, deleting.DeleteRecordsResponse, timeout_ms=TIMEOUT_MS
                )
            except (NotSent, OutcomeUnknown):
                self._history.record("deleter", "info", "delete")
                continue
            result = response.topics[0].partitions[0]
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._history.record("deleter", "fail", "delete", error=result.error_code)
                before = 0
            elif result.error_code:
                # The leader may have deleted records and failed before all its followers did.
                self._history.record("deleter", "info", "delete", error=result.error_code)
                before = 0
            else:
                self._history.record("deleter", "ok", "delete", log_start=result.low_watermark)
