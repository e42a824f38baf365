"""Whether a new leader's log goes on where we stopped: what was asked is what is compared."""

import asyncio
from collections.abc import Mapping

from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.offset_lookup import Answers, EpochEnd, OffsetLookup
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
    """One record, as a leader of the epoch wrote it."""
    data = build_batch([Record(first_offset, 0, None, b"v")], leader_epoch=EPOCH)
    return CompletedFetch(Slice(T0.topic, T0.partition, first_offset, data))


class StandInLookup(OffsetLookup):
    """The log ends where it is told to; a record arrives between question and answer."""

    def __init__(
        self, state: PartitionState, ends: list[int], arriving: list[CompletedFetch]
    ) -> None:
        self._state = state
        self._ends = ends
        self._arriving = arriving
        self.asked: list[int] = []

    async def ask_epochs(self, wanted: Mapping[TopicPartition, int]) -> Answers:
        self.asked.append(self._state.fetch_position.offset)
        if self._arriving:
            self._state.fetched(self._arriving.pop())
        return Answers({T0: EpochEnd(EPOCH, self._ends.pop(0))}, {})


def validated(ends: list[int], arriving: list[CompletedFetch]) -> tuple[PartitionState, list[int]]:
    """A partition at offset 1 of which a leader has to say whether it goes on there."""

    async def main() -> tuple[PartitionState, list[int]]:
        core = ClientCore(ConsumerSettings.read({"bootstrap.servers": "localhost:1"}))
        subscription = Subscription()
        subscription.assign([T0])
        state = subscription.state(T0)
        state.seek(Position(1, EPOCH))
        assert state.status is Status.VALIDATING
        lookup = StandInLookup(state, ends, arriving)
        positions = Positions(core, subscription, lookup, committed=None, on_news=lambda: None)
        while ends:
            await positions._validate()
        await core.close()
        return state, lookup.asked

    return asyncio.run(main())


def test_records_that_come_while_it_is_asked_are_asked_about_again() -> None:
    state, asked = validated([1, 2], [slice_of(1)])
    assert asked == [1, 2]
    assert state.status is Status.FETCHING
    assert (state.position.offset, state.fetch_position.offset, len(state.slices)) == (1, 2, 1)


def test_a_log_that_ends_before_what_was_asked_about_was_cut() -> None:
    state, asked = validated([0, 0], [slice_of(1)])
    assert asked == [1, 0]
    assert (state.position.offset, len(state.slices)) == (0, 0)
