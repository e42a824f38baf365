"""`lograft transactions` in words."""

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


async def places_of(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """`T` or `T:0,2`; all partitions of all topics, if nothing is said."""
    scope = parse_scope(texts)
    topics = await admin.describe_topics(scope or None)
    places = []
    for name, topic in topics.items():
        there = {one.index for one in topic.partitions}
        wanted = scope.get(name)
        if wanted and not wanted <= there:
            raise InvalidInput(f"topic {name} has {count(len(there), 'partition')}, from 0 on")
        places += [TopicPartition(name, index) for index in sorted(wanted or there)]
    return places


def list_lines(found: Sequence[TransactionListing], *, is_filtered: bool) -> list[str]:
    if not found:
        filtered = "No transactional id matches --state and --open-for."
        return [filtered if is_filtered else "There are no transactional ids."]
    return table(
        ["TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"],
        (
            (one.transactional_id, one.state, str(one.producer_id), str(one.coordinator))
            for one in found
        ),
    )


def describe_lines(found: Collection[TransactionDescription], *, now_ms: int) -> list[str]:
    return table(
        ["TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "OPEN FOR", "TIMEOUT", "PARTITIONS"],
        (
            (
                one.transactional_id,
                one.state,
                str(one.producer_id),
                str(one.producer_epoch),
                NOTHING if one.start_ms < 0 else f"{max(0, now_ms - one.start_ms) / 1000:.0f} s",
                f"{one.timeout_ms / 1000:.0f} s",
                " ".join(map(str, one.partitions)) or NOTHING,
            )
            for one in found
        ),
    )


def producer_lines(found: Mapping[TopicPartition, Sequence[ActiveProducer]]) -> list[str]:
    rows = [
        (
            str(place),
            str(one.producer_id),
            str(one.producer_epoch),
            number(one.last_sequence),
            number(one.transaction_start_offset),
        )
        for place, producers in sorted(found.items())
        for one in producers
    ]
    if not rows:
        return ["These partitions remember no producer."]
    return table(["PARTITION", "PRODUCER", "EPOCH", "SEQUENCE", "TRANSACTION FROM"], rows)


def hanging_lines(found: Sequence[HangingTransaction], *, executed: bool) -> list[str]:
    if not found:
        return ["No transaction hangs."]
    lines = table(
        ["PARTITION", "PRODUCER", "EPOCH", "FROM OFFSET"],
        (
            (str(one.place), str(one.producer_id), str(one.producer_epoch), str(one.start_offset))
            for one in found
        ),
    )
    ended = f"{count(len(found), 'transaction')} ended."
    return [*lines, "", ended if executed else "Nothing is changed yet: --execute ends them."]
