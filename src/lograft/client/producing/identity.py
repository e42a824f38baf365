"""Who a producer is for the brokers: an id and an epoch, by which they know its batches again.

The sender asks the identity whether batches may go out, and tells it what becomes of them. A
producer that is only idempotent asks any broker for an id; a transactional one is known to a
coordinator (`transactions.py`).
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

#: Of the transactions of a producer that has none.
_NO_TIMEOUT_MS: Final = 0x7FFF_FFFF


class SenderCalls(Protocol):
    """What an identity asks of the sender."""

    def wake(self) -> None: ...

    def end(self, error: Exception) -> None: ...

    def drop_unsent(self, error: Exception) -> None: ...


class Identity(Protocol):
    sequences: Sequences

    @property
    def produce_version_max(self) -> int | None:
        """The newest version of Produce that means what we mean; None: any."""

    def is_ready(self) -> bool:
        """Whether batches may be sent now; what is missing for it is asked for."""

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether batches of that partition may be sent now."""

    def on_sending(self, batch: Batch) -> None: ...

    def on_failed(self, error: Exception) -> None:
        """Records were not delivered, and will not be."""

    def obstacle(self) -> Exception | None:
        """Why batches are not to be sent again."""


class IdempotentIdentity:
    """Lasts until its epochs are used up; nobody else can have it."""

    produce_version_max: int | None = None

    def __init__(
        self, core: ClientCore[ProducerSettings], accumulator: Accumulator, sender: SenderCalls
    ) -> None:
        self._core = core
        self._accumulator = accumulator
        self._sender = sender
        self.sequences = Sequences()
        self._is_asking = False
        self._attempts = 0

    def is_ready(self) -> bool:
        sequences = self.sequences
        if sequences.has_hole and not sequences.has_open:
            sequences.bump()
        if sequences.is_known:
            return True
        if self._accumulator.active and not self._is_asking:
            self._is_asking = True
            self._core.runtime.spawn(self._ask(), name="producer id")
        return False

    def admits(self, queue: PartitionQueue) -> bool:
        return True

    def on_sending(self, batch: Batch) -> None:
        self.sequences.assign(batch)

    def on_failed(self, error: Exception) -> None: ...

    def obstacle(self) -> Exception | None:
        return None

    async def _ask(self) -> None:
        await self._ask_once()
        # Not after a cancellation: the client or its loop is being closed, and another request
        # would outlive it.
        self._is_asking = False
        self._sender.wake()

    async def _ask_once(self) -> None:
        try:
            answer = await self._core.network.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS),
                InitProducerIdResponse,
            )
            if answer.error_code:
                raise broker_error(answer.error_code, "a producer id was asked for")
            self.sequences.begin(answer.producer_id, answer.producer_epoch)
            self._attempts = 0
        except ClientError as error:
            if not error.is_retriable:
                self._sender.end(error)
                return
            self._attempts += 1
            await asyncio.sleep(self._pause_ms() / 1000)

    def _pause_ms(self) -> int:
        settings = self._core.settings
        return backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            self._attempts,
            self._core.runtime.randomness,
        )
