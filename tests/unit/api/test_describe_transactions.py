from lograft.model.errors import ErrorCode
from tests.support.scenarios import scenario
from tests.unit.api.transactions_bench import begin, describe, play, produce
from tests.unit.broker.bench import Bench


@scenario(play)
async def test_states_of_a_transactional_id(bench: Bench, /) -> None:
    assert (await describe(bench)).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await describe(bench, "")).error_code == ErrorCode.INVALID_REQUEST
    producer = await begin(bench, timeout_ms=7_000)
    idle = await describe(bench)
    assert (idle.error_code, idle.transaction_state) == (0, "Empty")
    assert (idle.transaction_start_time_ms, idle.topics) == (-1, [])
    assert (idle.producer_id, idle.producer_epoch) == producer[:2]
    began_ms = bench.broker.clock.wall_ms()
    await produce(bench, producer, b"v", partition=2)
    busy = await describe(bench)
    assert (busy.transaction_state, busy.transaction_timeout_ms) == ("Ongoing", 7_000)
    assert began_ms <= busy.transaction_start_time_ms <= bench.broker.clock.wall_ms()
    assert [(topic.topic, topic.partitions) for topic in busy.topics] == [("t", [2])]
