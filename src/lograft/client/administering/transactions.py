"""Requests that list and describe transactions, and abort hanging ones."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lograft.client.administering.partitions import describe_producers, error_if_failed
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import ClientError, WrongUse, raise_for
from lograft.client.network import Node
from lograft.model.types import TopicPartition
from lograft.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from lograft.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    coordinator: int
    producer_id: int
    #: "Empty", "Ongoing", "PrepareCommit", "CompleteAbort" …
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id.

    async with transactional.transaction():
        await transactional.send("orders", b"paid")
        described = await admin.describe_transactions(["examples"])
        transaction: TransactionDescription = described["examples"]
        assert transaction.state == "Ongoing"
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    #: -1: no transaction is open.
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition and unknown to its coordinator, so that it will not
    end by itself.

    partitions = [TopicPartition("orders", 0)]
    hanging: list[HangingTransaction] = await admin.find_hanging_transactions(
        partitions, open_for_ms=900_000, now_ms=0
    )
    assert hanging == []
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


async def list_transactions(
    driver: RequestDriver,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    open_for_ms: int | None = None,
    pattern: str | None = None,
) -> list[TransactionListing]:
    at_least = 2 if pattern is not None else 1 if open_for_ms is not None else 0

    async def send(node: Node | None, ids: Sequence[int]) -> dict[int, list[TransactionListing]]:
        (broker,) = ids
        response = await driver.send(
            node,
            ListTransactionsRequest(
                state_filters=list(as_iterable(states)),
                producer_id_filters=list(producer_ids),
                duration_filter=-1 if open_for_ms is None else open_for_ms,
                transactional_id_pattern=pattern,
            ),
            ListTransactionsResponse,
            at_least=at_least,
        )
        raise_for(response.error_code, f"transactions of broker {broker}")
        if response.unknown_state_filters:
            raise WrongUse(f"unknown transaction state {response.unknown_state_filters[0]!r}")
        return {
            broker: [
                TransactionListing(
                    state.transactional_id, broker, state.producer_id, state.transaction_state
                )
                for state in response.transaction_states
            ]
        }

    by_broker = await driver.results_of(await driver.list_broker_ids(), driver.find_brokers, send)
    listings = [listing for transactions in by_broker.values() for listing in transactions]
    return sorted(listings, key=lambda listing: listing.transactional_id)


async def describe_transactions(
    driver: RequestDriver, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    async def send(
        node: Node | None, ids: Sequence[str]
    ) -> dict[str, TransactionDescription | ClientError]:
        assert isinstance(node, int)
        response = await driver.send(
            node,
            DescribeTransactionsRequest(transactional_ids=list(ids)),
            DescribeTransactionsResponse,
        )
        return {
            state.transactional_id: error_if_failed(
                state.error_code, f"transactional id {state.transactional_id!r}"
            )
            or _describe_transaction(state, node)
            for state in response.transaction_states
        }

    return await driver.results_of(transactional_ids, driver.find_transaction_coordinators, send)


async def fence_producers(
    driver: RequestDriver, transactional_ids: Iterable[str]
) -> dict[str, int]:
    async def send(node: Node | None, ids: Sequence[str]) -> dict[str, int | ClientError]:
        outcomes: dict[str, int | ClientError] = {}
        for transactional_id in ids:
            response = await driver.send(
                node,
                InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=driver.request_timeout_ms,
                ),
                InitProducerIdResponse,
            )
            error = error_if_failed(response.error_code, f"transactional id {transactional_id!r}")
            outcomes[transactional_id] = response.producer_id if error is None else error
        return outcomes

    return await driver.results_of(transactional_ids, driver.find_transaction_coordinators, send)


async def find_hanging_transactions(
    driver: RequestDriver, partitions: Iterable[TopicPartition], *, open_for_ms: int, now_ms: int
) -> list[HangingTransaction]:
    suspects = [
        HangingTransaction(
            partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.transaction_start_offset,
            producer.last_timestamp_ms,
        )
        for partition, producers in (await describe_producers(driver, partitions)).items()
        for producer in producers
        if producer.transaction_start_offset >= 0
        and now_ms - producer.last_timestamp_ms > open_for_ms
    ]
    if not suspects:
        return []
    listings = await list_transactions(
        driver, producer_ids=sorted({suspect.producer_id for suspect in suspects})
    )
    known = await describe_transactions(driver, (listing.transactional_id for listing in listings))
    ongoing = {
        (transaction.producer_id, partition)
        for transaction in known.values()
        for partition in transaction.partitions
    }
    return [
        suspect for suspect in suspects if (suspect.producer_id, suspect.partition) not in ongoing
    ]


async def abort_transaction(
    driver: RequestDriver,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    async def send(
        node: Node | None, items: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ClientError | None]:
        response = await driver.send(
            node,
            WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=producer_epoch,
                        transaction_result=False,
                        coordinator_epoch=max(0, coordinator_epoch),
                        topics=[
                            WritableTxnMarkerTopic(
                                name=partition.topic, partition_indexes=[partition.partition]
                            )
                        ],
                    )
                ]
            ),
            WriteTxnMarkersResponse,
        )
        return {
            TopicPartition(topic.name, result.partition_index): error_if_failed(
                result.error_code, f"the transaction of producer {producer_id} in {partition}"
            )
            for marker in response.markers
            for topic in marker.topics
            for result in topic.partitions
        }

    await driver.results_of([partition], driver.find_leaders, send)


def _describe_transaction(state: TransactionState, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        coordinator,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(
            TopicPartition(topic.topic, index)
            for topic in state.topics
            for index in topic.partitions
        ),
    )
