"""Transactions: which there are, what they are doing, and ending those that hang."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lograft.client.administering.partitions import describe_producers, failure
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
    """What one transactional id is doing.

    async with transactional.transaction():
        await transactional.send("orders", b"paid")
        told: TransactionDescription = (await admin.describe_transactions(["examples"]))["examples"]
        assert told.state == "Ongoing"
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    #: -1: none is open.
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class HangingTransaction(NamedTuple):
    """Open in a partition, while its coordinator knows nothing of it: nobody will end it.

    places = [TopicPartition("orders", 0)]
    hanging: list[HangingTransaction] = await admin.find_hanging_transactions(
        places, open_for_ms=900_000, now_ms=0
    )
    assert hanging == []
    """

    place: TopicPartition
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
            raise WrongUse(f"no transaction has the state {response.unknown_state_filters[0]!r}")
        return {
            broker: [
                TransactionListing(
                    one.transactional_id, broker, one.producer_id, one.transaction_state
                )
                for one in response.transaction_states
            ]
        }

    told = await driver.results_of(await driver.list_broker_ids(), driver.find_brokers, send)
    found = [one for transactions in told.values() for one in transactions]
    return sorted(found, key=lambda one: one.transactional_id)


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
            one.transactional_id: failure(
                one.error_code, f"transactional id {one.transactional_id!r}"
            )
            or _described(one, node)
            for one in response.transaction_states
        }

    return await driver.results_of(transactional_ids, driver.find_transaction_coordinators, send)


async def fence_producers(
    driver: RequestDriver, transactional_ids: Iterable[str]
) -> dict[str, int]:
    async def send(node: Node | None, ids: Sequence[str]) -> dict[str, int | ClientError]:
        found: dict[str, int | ClientError] = {}
        for one in ids:
            response = await driver.send(
                node,
                InitProducerIdRequest(
                    transactional_id=one, transaction_timeout_ms=driver.request_timeout_ms
                ),
                InitProducerIdResponse,
            )
            error = failure(response.error_code, f"transactional id {one!r}")
            found[one] = response.producer_id if error is None else error
        return found

    return await driver.results_of(transactional_ids, driver.find_transaction_coordinators, send)


async def find_hanging_transactions(
    driver: RequestDriver, partitions: Iterable[TopicPartition], *, open_for_ms: int, now_ms: int
) -> list[HangingTransaction]:
    suspects = [
        HangingTransaction(
            place,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.transaction_start_offset,
            one.last_timestamp_ms,
        )
        for place, producers in (await describe_producers(driver, partitions)).items()
        for one in producers
        if one.transaction_start_offset >= 0 and now_ms - one.last_timestamp_ms > open_for_ms
    ]
    if not suspects:
        return []
    listed = await list_transactions(
        driver, producer_ids=sorted({one.producer_id for one in suspects})
    )
    known = await describe_transactions(driver, (one.transactional_id for one in listed))
    alive = {(one.producer_id, place) for one in known.values() for place in one.partitions}
    return [one for one in suspects if (one.producer_id, one.place) not in alive]


async def abort_transaction(
    driver: RequestDriver,
    place: TopicPartition,
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
                                name=place.topic, partition_indexes=[place.partition]
                            )
                        ],
                    )
                ]
            ),
            WriteTxnMarkersResponse,
        )
        return {
            TopicPartition(topic.name, one.partition_index): failure(
                one.error_code, f"the transaction of producer {producer_id} in {place}"
            )
            for marker in response.markers
            for topic in marker.topics
            for one in topic.partitions
        }

    await driver.results_of([place], driver.find_leaders, send)


def _described(told: TransactionState, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        told.transactional_id,
        coordinator,
        told.transaction_state,
        told.producer_id,
        told.producer_epoch,
        told.transaction_timeout_ms,
        told.transaction_start_time_ms,
        tuple(
            TopicPartition(topic.topic, index)
            for topic in told.topics
            for index in topic.partitions
        ),
    )
