"""Transactions that one process fills and another one ends: for jobs whose parts run in many
places and count together or not at all.

A coordinator asks who ends a transaction only for its id and the producer's epoch, not on which
connection; so these are all that has to be handed on.
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

#: The newest version that means the first protocol.
END_V1_MAX: Final = 4
_PATIENCE_MS: Final = 60_000
#: Answers that say that the transaction has been ended by others, or was never there.
_NOT_OURS: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    )
)


class PreparedTransaction(NamedTuple):
    """A transaction whose records are written and whose end somebody else decides.

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
    #: Nothing was written: there is nothing to end.
    is_empty: bool


async def complete_transactions(
    settings: Mapping[str, Any],
    transactions: Iterable[PreparedTransaction],
    *,
    commits: bool,
    runtime: Runtime | None = None,
) -> None:
    """Commits or aborts all of them. Asked for again, it does no harm: what has been committed
    stays so. Raises ProducerFenced when one cannot be committed any more; aborting does not mind.
    """
    core = ClientCore(ClientSettings.read(settings), runtime=runtime)
    try:
        await asyncio.gather(
            *(_complete(core, one, commits) for one in transactions if not one.is_empty)
        )
    finally:
        await core.close()


async def _complete(
    core: ClientCore[ClientSettings], prepared: PreparedTransaction, commits: bool
) -> None:
    what = f"{'committing' if commits else 'aborting'} {prepared.transactional_id!r}"
    coordinator = Coordinator(core, CoordinatorType.TRANSACTION, prepared.transactional_id)

    async def attempt() -> None:
        answer = await coordinator.request(
            EndTxnRequest(
                transactional_id=prepared.transactional_id,
                producer_id=prepared.producer_id,
                producer_epoch=prepared.producer_epoch,
                committed=commits,
            ),
            EndTxnResponse,
            at_most=None if prepared.uses_v2 else END_V1_MAX,
        )
        if answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # Older coordinators say so to whom they have fenced.
            raise broker_error(ErrorCode.PRODUCER_FENCED, what, "a newer producer has this id")
        coordinator.raise_for(answer.error_code, what)

    try:
        await retry(core, attempt, what=what, timeout_ms=_PATIENCE_MS)
    except BrokerError as error:
        if commits or error.code not in _NOT_OURS:
            raise
