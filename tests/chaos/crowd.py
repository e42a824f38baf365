"""Hundreds of connections in one event loop, each a client that does one thing again and again."""

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
from tests.chaos.recording import PASSING, Run
from tests.chaos.topics import Topic
from tests.compatibility.servers import HOST

ANSWER_SECONDS_MAX: Final = 20.0
RETRY_SECONDS_MAX: Final = 60.0
M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Client:
    """One connection, made again after it broke."""

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: Message, version: int, answer: type[M]) -> M:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                frame = frame_request(request, version, correlation_id=1, client_id=self.name)
                data = await self._exchange(frame)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise ConnectionError(str(error)) from None
        header_version = response_header_version(request.KEY, version)
        _correlation_id, position = read_response_header(data, header_version)
        return read_all(answer, version, data, position)

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

    async def until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                return await ask()
            except ConnectionError as error:
                problem = str(error)
            except ErrorResponse as error:
                if error.code not in PASSING:
                    raise
                problem = str(error)
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer for {RETRY_SECONDS_MAX:.0f} s: {problem}")
            await asyncio.sleep(0.05)


async def produce(run: Run, index: int, topic: Topic, tp: TopicPartition) -> None:
    """Idempotent, one batch at a time, each sent until it is acknowledged."""
    client = Client(run, f"p{index}")
    chance = random.Random(f"{run.seed}-{client.name}")
    ask_for_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    try:
        known = await client.until_answered(
            lambda: client.ask(ask_for_id, 4, InitProducerIdResponse)
        )
        if known.error_code:
            raise ErrorResponse(known.error_code)
        sequence = 0
        while not run.stop.is_set():
            uid = f"{client.name}-{sequence}"
            proc = f"{client.name}#{sequence}"
            batch = batch_of(
                [value_of(uid, topic.value_bytes)],
                now_ms=time.time_ns() // 1_000_000,
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                sequence=sequence,
            )
            run.history.record(proc, "invoke", "send", tp=str(tp), uid=uid, pid=index, seq=sequence)
            offset = await client.until_answered(lambda batch=batch: _send(client, tp, batch))  # type: ignore[misc]
            run.history.record(proc, "ok", "send", offset=offset)
            sequence += 1
            await asyncio.sleep(chance.random() * 0.4)
    except (ErrorResponse, TimeoutError) as error:
        run.trouble(client.name, f"{tp}: {error}")
    finally:
        client.close()


async def _send(client: Client, tp: TopicPartition, batch: bytes) -> int:
    answer = await client.ask(produce_request(tp, batch), PRODUCE_VERSION, ProduceResponse)
    return base_offset_in(answer)


async def follow(run: Run, index: int, tp: TopicPartition) -> None:
    """Reads a partition from its beginning; at its end it waits with the node for more."""
    client = Client(run, f"c{index}")
    offset = 0
    try:
        while not run.stop.is_set():
            run.history.record(client.name, "invoke", "poll", tp=str(tp), offset=offset)
            try:
                request = fetch_request(tp, offset, wait_ms=400)
                got = fetched_in(await client.ask(request, FETCH_VERSION, FetchResponse), offset)
            except ConnectionError:
                run.history.record(client.name, "info", "poll")
                await asyncio.sleep(0.05)
                continue
            except ErrorResponse as error:
                run.history.record(client.name, "fail", "poll")
                if error.code not in PASSING:
                    run.trouble(client.name, f"{tp}: {error}")
                await asyncio.sleep(0.05)
                continue
            run.history.record(
                client.name,
                "ok",
                "poll",
                records=got.records,
                hw=got.high_watermark,
                log_start=got.log_start,
                bad_crc=got.bad_crc,
            )
            offset = got.next_offset
    finally:
        client.close()
