"""Hundreds of connections in one event loop, each a client that repeats one operation."""

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lograft.model.types import TopicPartition
from lograft.wire.apis import response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.fetch import FetchResponse
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.produce import ProduceResponse
from tests.chaos.payloads import value_of
from tests.chaos.raw_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    ErrorResponse,
    base_offset_in,
    batch_of,
    fetch_request,
    fetched_in,
    produce_request,
)
from tests.chaos.recording import TRANSIENT, Run
from tests.chaos.topics import Topic
from tests.compatibility.servers import HOST

RESPONSE_SECONDS_MAX: Final = 20.0
RETRY_SECONDS_MAX: Final = 60.0
M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Client:
    """A client with one connection, which is reopened after it breaks."""

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, request: Message, version: int, response_type: type[M]) -> M:
        try:
            async with asyncio.timeout(RESPONSE_SECONDS_MAX):
                frame = frame_request(request, version, correlation_id=1, client_id=self.name)
                data = await self._exchange(frame)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise ConnectionError(str(error)) from None
        header_version = response_header_version(request.KEY, version)
        _correlation_id, position = read_response_header(data, header_version)
        return read_all(response_type, version, data, position)

    async def _exchange(self, frame: bytes) -> bytes:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(HOST, self.run.port)
        self._writer.write(frame)
        await self._writer.drain()
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def retry(self, operation: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                return await operation()
            except ConnectionError as error:
                problem = str(error)
            except ErrorResponse as error:
                if error.code not in TRANSIENT:
                    raise
                problem = str(error)
            if time.monotonic() > deadline:
                raise TimeoutError(f"no response for {RETRY_SECONDS_MAX:.0f} s: {problem}")
            await asyncio.sleep(0.05)


async def produce(run: Run, index: int, topic: Topic, tp: TopicPartition) -> None:
    """Sends one idempotent batch at a time, each until it is acknowledged."""
    client = Client(run, f"p{index}")
    chance = random.Random(f"{run.seed}-{client.name}")
    id_request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    try:
        producer = await client.retry(lambda: client.request(id_request, 4, InitProducerIdResponse))
        if producer.error_code:
            raise ErrorResponse(producer.error_code)
        sequence = 0
        while not run.stop.is_set():
            uid = f"{client.name}-{sequence}"
            proc = f"{client.name}#{sequence}"
            batch = batch_of(
                [value_of(uid, topic.value_bytes)],
                now_ms=time.time_ns() // 1_000_000,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                sequence=sequence,
            )
            run.history.record(proc, "invoke", "send", tp=str(tp), uid=uid, pid=index, seq=sequence)
            offset = await client.retry(lambda batch=batch: _send(client, tp, batch))  # type: ignore[misc]
            run.history.record(proc, "ok", "send", offset=offset)
            sequence += 1
            await asyncio.sleep(chance.random() * 0.4)
    except (ErrorResponse, TimeoutError) as error:
        run.trouble(client.name, f"{tp}: {error}")
    finally:
        client.close()


async def _send(client: Client, tp: TopicPartition, batch: bytes) -> int:
    response = await client.request(produce_request(tp, batch), PRODUCE_VERSION, ProduceResponse)
    return base_offset_in(response)


async def follow(run: Run, index: int, tp: TopicPartition) -> None:
    """Reads a partition from its beginning, with long polls at its end."""
    client = Client(run, f"c{index}")
    offset = 0
    try:
        while not run.stop.is_set():
            run.history.record(client.name, "invoke", "poll", tp=str(tp), offset=offset)
            try:
                request = fetch_request(tp, offset, wait_ms=400)
                fetched = fetched_in(
                    await client.request(request, FETCH_VERSION, FetchResponse), offset
                )
            except ConnectionError:
                run.history.record(client.name, "info", "poll")
                await asyncio.sleep(0.05)
                continue
            except ErrorResponse as error:
                run.history.record(client.name, "fail", "poll")
                if error.code not in TRANSIENT:
                    run.trouble(client.name, f"{tp}: {error}")
                await asyncio.sleep(0.05)
                continue
            run.history.record(
                client.name,
                "ok",
                "poll",
                records=fetched.records,
                hw=fetched.high_watermark,
                log_start=fetched.log_start,
                bad_crc=fetched.bad_crc,
            )
            offset = fetched.next_offset
    finally:
        client.close()
