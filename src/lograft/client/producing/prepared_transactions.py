"""Transactions that one process writes and another one completes, for distributed jobs that commit
the transactions of all their tasks or none.

A coordinator identifies a transaction by the transactional id, the producer id and the epoch, not
by the connection, so only these need to be passed to the other process.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from lograft.client.client_settings import ClientSettings
from lograft.client.coordinators import Coordinator, CoordinatorType
from lograft.client.core import ClientCore
from lograft.client.errors import BrokerError, broker_error
from lograft.client.retries import retry
from lograft.model.errors import ErrorCode
from lograft.model.seams import Runtime
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

#: The newest version of the first protocol.
END_V1_MAX: Final = 4
_TIMEOUT_MS: Final = 60_000
#: Errors that mean that the transaction has been ended already, or never existed.
_ALREADY_ENDED: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    )
)


class PreparedTransaction(NamedTuple):
    """A transaction whose records are written, to be completed by `complete_transactions`.

    await transactional.begin_transaction()
    await transactional.send("topic", b"value")
    prepared = await transactional.prepare_transaction()
    assert isinstance(prepared, PreparedTransaction)
    await complete_transactions({"bootstrap.servers": "localhost:9092"}, [prepared], commits=True)
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    uses_v2: bool
    #: Nothing was written, so no request is needed.
    is_empty: bool


async def complete_transactions(
    settings: Mapping[str, Any],
    transactions: Iterable[PreparedTransaction],
    *,
    commits: bool,
    runtime: Runtime | None = None,
) -> None:
    """Commits or aborts all of these transactions. Idempotent: the call can be repeated. Raises
    ProducerFenced if a transaction can no longer be committed; aborting ignores that."""
    core = ClientCore(ClientSettings.read(settings), runtime=runtime)
    try:
        await asyncio.gather(
            *(
                _complete(core, transaction, commits)
                for transaction in transactions
                if not transaction.is_empty
            )
        )
    finally:
        await core.close()


async def _complete(
    core: ClientCore[ClientSettings], prepared: PreparedTransaction, commits: bool
) -> None:
    what = f"{'committing' if commits else 'aborting'} {prepared.transactional_id!r}"
    coordinator = Coordinator(core, CoordinatorType.TRANSACTION, prepared.transactional_id)

    async def attempt() -> None:
        response = await coordinator.request(
            EndTxnRequest(
                transactional_id=prepared.transactional_id,
                producer_id=prepared.producer_id,
                producer_epoch=prepared.producer_epoch,
                committed=commits,
            ),
            EndTxnResponse,
            at_most=None if prepared.uses_v2 else END_V1_MAX,
        )
        if response.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # Older coordinators return this code to fenced producers.
            raise broker_error(
                ErrorCode.PRODUCER_FENCED, what, "a newer producer uses this transactional id"
            )
        coordinator.raise_for(response.error_code, what)

    try:
        await retry(core, attempt, what=what, timeout_ms=_TIMEOUT_MS)
    except BrokerError as error:
        if commits or error.code not in _ALREADY_ENDED:
            raise
