"""Topics are created and deleted while producers write; then the node stops or is killed, and
starts again."""

import asyncio
from random import Random

import pytest

from lograft.metadata.topics import delete_topics
from lograft.model.errors import ErrorCode
from lograft.wire.messages.delete_topics import DeleteTopicsRequest
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.unit.broker.bench import Bench, StandInController, batch_of, new_machine, run

#: Errors that a producer may receive while topics are created and deleted.
EXPECTED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.REQUEST_TIMED_OUT,
)


async def step(bench: Bench, random: Random) -> None:
    name = f"t{random.randrange(3)}"
    exists = name in bench.broker.image.topic_ids
    choice = random.random()
    if choice < 0.15 and not exists:
        flush = {"flush_messages": "1"} if random.random() < 0.5 else {}
        bench.begin_topic(name, random.randrange(1, 6), **flush)
    elif choice < 0.22 and exists:
        request = DeleteTopicsRequest(topic_names=[name])
        await bench.controller.submit(
            lambda image: delete_topics(image, request, config=bench.config)
        )
    elif exists:
        topic_id, index = bench.topic_id(name), random.randrange(6)
        data = PartitionProduceData(index=index, records=batch_of(b"x"))
        topic = TopicProduceData(topic_id=topic_id, partition_data=[data])
        produce = ProduceRequest(acks=random.choice([-1, 1]), timeout_ms=2000, topic_data=[topic])
        response = await bench.ask(produce, 13, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code in EXPECTED, answer
        partition = bench.broker.partitions.get_by_id(topic_id, index)
        if not answer.error_code and partition is not None:
            assert partition.high_watermark > answer.base_offset


@pytest.mark.parametrize("seed", range(25))
def test_nothing_that_was_committed_is_missing_after_a_restart(seed: int) -> None:
    random = Random(seed)
    machine, controller = new_machine(seed), StandInController()

    async def worker(bench: Bench) -> None:
        for _ in range(15):
            await asyncio.sleep(random.random() * 0.01)
            await step(bench, random)

    async def first(bench: Bench) -> None:
        await asyncio.gather(*(worker(bench) for _ in range(12)))

    stop = random.random() < 0.5
    bench = run(first, machine=machine, controller=controller, stop=stop, log_dirs="/one,/two")
    assert not bench.halted
    ends = {
        (partition.topic_id, partition.index): partition.high_watermark
        for partition in bench.broker.partitions
        if partition.log is not None
    }
    if random.random() < 0.5:
        machine.kill()
    else:
        machine.exit()

    async def second(bench: Bench) -> None:
        for (topic_id, index), end in ends.items():
            partition = bench.broker.partitions.get_by_id(topic_id, index)
            assert partition is not None
            assert not partition.offline
            assert partition.high_watermark == end
        await asyncio.sleep(400)

    bench = run(second, machine=machine, controller=controller, log_dirs="/one,/two")
    assert not bench.halted
