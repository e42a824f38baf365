"""The producer id and epoch by which brokers recognize the batches of a producer.

The sender checks with the identity whether batches may be sent, and reports what became of them. An
idempotent producer gets its id from any broker; a transactional one from its coordinator
(`transactions.py`).
"""

import asyncio
from typing import Final, Protocol

from lograft.client.backoff import backoff_ms
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, broker_error
from lograft.client.producing.accumulator import Accumulator, PartitionQueue
from lograft.client.producing.batches import Batch
from lograft.client.producing.sequences import Sequences
from lograft.client.producing.settings import ProducerSettings
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: Transaction timeout in the request of a producer without transactions.
_NO_TIMEOUT_MS: Final = 0x7FFF_FFFF


class SenderCalls(Protocol):
    """The methods of the sender that an identity calls."""

    def wake(self) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def fail_unsent(self, error: Exception) -> None: ...


class ProducerIdentity(Protocol):
    sequences: Sequences

    @property
    def produce_version_max(self) -> int | None:
        """The newest version of Produce that uses the same transaction protocol; None: any."""

    def is_ready(self) -> bool:
        """Whether batches may be sent now. If not, requests what is missing."""

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether batches of that partition may be sent now."""

    def on_sending(self, batch: Batch) -> None: ...

    def on_failed(self, error: Exception) -> None:
        """Called when records have failed for good."""

    def retry_error(self) -> Exception | None:
        """Returns why batches must not be retried, or None if they may be."""


class IdempotentIdentity:
    """The identity of a producer without transactions. It lasts until its epochs are used up, and
    no other producer can fence it."""

    produce_version_max: int | None = None

    def __init__(
        self, core: ClientCore[ProducerSettings], accumulator: Accumulator, sender: SenderCalls
    ) -> None:
        self._core = core
        self._accumulator = accumulator
        self._sender = sender
        self.sequences = Sequences()
        self._is_requesting = False
        self._failures = 0

    def is_ready(self) -> bool:
        sequences = self.sequences
        if sequences.has_gap and not sequences.has_open:
            sequences.bump()
        if sequences.is_known:
            return True
        if self._accumulator.active and not self._is_requesting:
            self._is_requesting = True
            self._core.runtime.spawn(self._request_id(), name="producer id")
        return False

    def admits(self, queue: PartitionQueue) -> bool:
        return True

    def on_sending(self, batch: Batch) -> None:
        self.sequences.assign(batch)

    def on_failed(self, error: Exception) -> None: ...

    def retry_error(self) -> Exception | None:
        return None

    async def _request_id(self) -> None:
        await self._request_once()
        # Not after a cancellation: the client or its loop is closing, and another request would
        # outlive it.
        self._is_requesting = False
        self._sender.wake()

    async def _request_once(self) -> None:
        try:
            response = await self._core.network.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS),
                InitProducerIdResponse,
            )
            if response.error_code:
                raise broker_error(response.error_code, "initializing the producer id")
            self.sequences.begin(response.producer_id, response.producer_epoch)
            self._failures = 0
        except ClientError as error:
            if not error.is_retriable:
                self._sender.fail(error)
                return
            self._failures += 1
            await asyncio.sleep(self._backoff_ms() / 1000)

    def _backoff_ms(self) -> int:
        settings = self._core.settings
        return backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            self._failures,
            self._core.runtime.randomness,
        )
