"""Validation of positions: the end of an epoch is compared with the position in the request."""

import asyncio
from collections.abc import Mapping

from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.offset_lookup import EpochEnd, LookupOutcome, OffsetLookup
from lograft.client.consuming.positions import Positions
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.slices import Slice
from lograft.client.consuming.subscription import PartitionState, Position, Status, Subscription
from lograft.client.core import ClientCore
from lograft.client.types import TopicPartition
from lograft.wire.batches import Record, build_batch

T0 = TopicPartition("t", 0)
EPOCH = 4


def slice_of(first_offset: int) -> CompletedFetch:
    """A slice with one record of the epoch."""
    data = build_batch([Record(first_offset, 0, None, b"v")], leader_epoch=EPOCH)
    return CompletedFetch(Slice(T0.topic, T0.partition, first_offset, data))


class StandInLookup(OffsetLookup):
    """The log has the given ends; a record is fetched between request and response."""

    def __init__(
        self, state: PartitionState, ends: list[int], in_flight: list[CompletedFetch]
    ) -> None:
        self._state = state
        self._ends = ends
        self._in_flight = in_flight
        self.requested_offsets: list[int] = []

    async def request_epoch_ends(
        self, leader_epochs: Mapping[TopicPartition, int]
    ) -> LookupOutcome:
        self.requested_offsets.append(self._state.fetch_position.offset)
        if self._in_flight:
            self._state.add_slice(self._in_flight.pop())
        return LookupOutcome({T0: EpochEnd(EPOCH, self._ends.pop(0))}, {})


def validate(ends: list[int], in_flight: list[CompletedFetch]) -> tuple[PartitionState, list[int]]:
    """Validates a partition at offset 1. Returns its state and the offsets of the requests."""

    async def main() -> tuple[PartitionState, list[int]]:
        core = ClientCore(ConsumerSettings.read({"bootstrap.servers": "localhost:1"}))
        subscription = Subscription()
        subscription.assign([T0])
        state = subscription.state(T0)
        state.seek(Position(1, EPOCH))
        assert state.status is Status.VALIDATING
        lookup = StandInLookup(state, ends, in_flight)
        positions = Positions(
            core, subscription, lookup, fetch_committed=None, on_change=lambda: None
        )
        while ends:
            await positions._validate()
        await core.close()
        return state, lookup.requested_offsets

    return asyncio.run(main())


def test_records_fetched_during_validation_are_validated_again() -> None:
    state, requested = validate([1, 2], [slice_of(1)])
    assert requested == [1, 2]
    assert state.status is Status.FETCHING
    assert (state.position.offset, state.fetch_position.offset, len(state.slices)) == (1, 2, 1)


def test_an_epoch_that_ends_before_the_position_means_truncation() -> None:
    state, requested = validate([0, 0], [slice_of(1)])
    assert requested == [1, 0]
    assert (state.position.offset, len(state.slices)) == (0, 0)
