import asyncio
from typing import Any

import pytest

from lograft.coordination import pattern_matching
from lograft.model.errors import ErrorCode
from lograft.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.api.transactions_bench import begin, play, produce
from tests.unit.broker.bench import Bench


async def send_request(bench: Bench, version: int = 2, **filters: Any) -> ListTransactionsResponse:
    request = ListTransactionsRequest(**filters)
    return await bench.ask(request, version, ListTransactionsResponse)


async def names(bench: Bench, version: int = 2, **filters: Any) -> list[str]:
    found = await send_request(bench, version, **filters)
    assert found.error_code == 0
    return sorted(
        transaction_state.transactional_id for transaction_state in found.transaction_states
    )


@scenario(play)
async def test_filters(bench: Bench, /) -> None:
    assert await names(bench) == []
    for name in ("idle", "busy", "busier"):
        producer = await begin(bench, name)
        if name != "idle":
            assert await produce(bench, producer, b"v") == 0
    for version in range(3):
        assert await names(bench, version) == ["busier", "busy", "idle"]
        assert await names(bench, version, state_filters=["Empty"]) == ["idle"]
        assert await names(bench, version, producer_id_filters=[producer.producer_id]) == ["busier"]
    odd = await send_request(bench, state_filters=["Odd"])
    assert (odd.unknown_state_filters, odd.transaction_states) == (["Odd"], [])
    assert await names(bench, transactional_id_pattern="bus.*") == ["busier", "busy"]
    assert await names(bench, transactional_id_pattern="bus") == []
    rejected = await send_request(bench, transactional_id_pattern="(")
    assert rejected.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    await asyncio.sleep(1)
    assert await names(bench, duration_filter=500, state_filters=["Ongoing"]) == [
        "busier",
        "busy",
    ]
    assert await names(bench, duration_filter=60_000, state_filters=["Ongoing"]) == []


@scenario(play)
async def test_expensive_pattern_is_matched_in_pieces(
    bench: Bench, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await begin(bench, f"x-{number}")
    monkeypatch.setattr(pattern_matching, "STEPS_AT_ONCE", 0)
    monkeypatch.setattr(pattern_matching, "STEPS_PER_PIECE", 0)
    listing = asyncio.ensure_future(names(bench, transactional_id_pattern="x-1."))
    turns = 0
    while not listing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 8, "other tasks run between the pieces"
    assert listing.result() == [f"x-{number}" for number in range(10, 20)]
