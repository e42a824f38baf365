"""Output of `lograft transactions`, and the partitions that its options name."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from lograft.cli.group_resets import parse_scope
from lograft.cli.output import NOTHING, count, number, table
from lograft.client.admin import (
    ActiveProducer,
    Admin,
    HangingTransaction,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from lograft.model.errors import InvalidInput


async def partitions_of(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """Parses `T` or `T:0,2`; returns all partitions of all topics if there are no texts."""
    scope = parse_scope(texts)
    topics = await admin.describe_topics(scope or None)
    partitions = []
    for name, topic in topics.items():
        existing = {partition.index for partition in topic.partitions}
        requested = scope.get(name)
        if requested and not requested <= existing:
            missing = min(requested - existing)
            total = count(len(existing), "partition")
            raise InvalidInput(
                f"partition {missing} does not exist: topic {name} has {total}, numbered from 0"
            )
        partitions += [TopicPartition(name, index) for index in sorted(requested or existing)]
    return partitions


def list_lines(found: Sequence[TransactionListing], *, is_filtered: bool) -> list[str]:
    if not found:
        filtered = "No transactional id matches --state and --open-for."
        return [filtered if is_filtered else "No transactional ids."]
    return table(
        ["TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"],
        (
            (
                listing.transactional_id,
                listing.state,
                str(listing.producer_id),
                str(listing.coordinator),
            )
            for listing in found
        ),
    )


def describe_lines(found: Collection[TransactionDescription], *, now_ms: int) -> list[str]:
    return table(
        ["TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "OPEN FOR", "TIMEOUT", "PARTITIONS"],
        (
            (
                transaction.transactional_id,
                transaction.state,
                str(transaction.producer_id),
                str(transaction.producer_epoch),
                NOTHING
                if transaction.start_ms < 0
                else f"{max(0, now_ms - transaction.start_ms) / 1000:.0f} s",
                f"{transaction.timeout_ms / 1000:.0f} s",
                " ".join(map(str, transaction.partitions)) or NOTHING,
            )
            for transaction in found
        ),
    )


def producer_lines(found: Mapping[TopicPartition, Sequence[ActiveProducer]]) -> list[str]:
    rows = [
        (
            str(partition),
            str(producer.producer_id),
            str(producer.producer_epoch),
            number(producer.last_sequence),
            number(producer.transaction_start_offset),
        )
        for partition, producers in sorted(found.items())
        for producer in producers
    ]
    if not rows:
        return ["These partitions have no active producers."]
    return table(["PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "TRANSACTION START"], rows)


def hanging_lines(found: Sequence[HangingTransaction], *, executed: bool) -> list[str]:
    if not found:
        return ["No hanging transactions."]
    lines = table(
        ["PARTITION", "PRODUCER", "EPOCH", "START OFFSET"],
        (
            (
                str(transaction.partition),
                str(transaction.producer_id),
                str(transaction.producer_epoch),
                str(transaction.start_offset),
            )
            for transaction in found
        ),
    )
    if executed:
        summary = f"Aborted {count(len(found), 'transaction')}."
    else:
        summary = "Dry run: nothing was changed. Use --execute to abort these transactions."
    return [*lines, "", summary]
