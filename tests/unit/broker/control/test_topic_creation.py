import asyncio

import pytest

from lograft.broker.control.topic_creation import create_on_demand, grow_on_demand
from lograft.model.errors import ErrorCode, Rejected
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

GROWING = {"auto_create_partitions_enable": "true", "auto_create_partitions_max": "5"}


@scenario(run, num_partitions="2")
async def test_topics_are_there_when_the_call_returns(bench: Bench, /) -> None:
    assert await create_on_demand(bench.broker.metadata, bench.broker.link, ["a", "b"]) == {}
    assert set(bench.broker.image.topic_ids) == {"a", "b"}
    assert bench.broker.partitions.get("a", 1) is not None


@scenario(run)
async def test_many_ask_for_the_same_topic_at_once(bench: Bench, /) -> None:
    asked = [create_on_demand(bench.broker.metadata, bench.broker.link, ["a"]) for _ in range(10)]
    assert await asyncio.gather(*asked) == [{}] * 10
    assert list(bench.broker.image.topic_ids) == ["a"]


@scenario(run)
async def test_refusals_name_their_topic(bench: Bench, /) -> None:
    await bench.create_topic("a.b")
    refused = await create_on_demand(bench.broker.metadata, bench.broker.link, ["a_b", "fine"])
    assert refused == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    bench.controller.down = True
    refused = await create_on_demand(bench.broker.metadata, bench.broker.link, ["later"])
    assert refused == {"later": ErrorCode.LEADER_NOT_AVAILABLE}


def test_topics_grow_one_way_up_to_their_limit() -> None:
    async def scenario(bench: Bench) -> None:
        await create_on_demand(bench.broker.metadata, bench.broker.link, ["a"])
        await grow_on_demand(bench.broker.metadata, bench.broker.link, "a", 2)
        assert bench.broker.partitions.get("a", 2) is not None
        await grow_on_demand(bench.broker.metadata, bench.broker.link, "a", 1)
        assert bench.broker.partitions.get("a", 3) is None
        await asyncio.gather(
            *(grow_on_demand(bench.broker.metadata, bench.broker.link, "a", n) for n in (4, 3, 4))
        )
        assert len(bench.broker.image.topics[bench.topic_id("a")].partitions) == 5
        with pytest.raises(Rejected, match="5"):
            await grow_on_demand(bench.broker.metadata, bench.broker.link, "a", 5)

    run(scenario, **GROWING)  # type: ignore[arg-type]


def test_topics_made_by_an_administrator_do_not_grow() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.create_topic("made")
        with pytest.raises(Rejected) as refusal:
            await grow_on_demand(bench.broker.metadata, bench.broker.link, "made", 1)
        assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario, **GROWING)  # type: ignore[arg-type]
