"""A topic that is deleted and created again while the files of its first life are being made."""

import asyncio

import pytest
from tests.unit.broker.bench import Bench, batch_of, new_machine, run

from lograft.metadata.topics import delete_topics
from lograft.storage.log_dirs import read_partition_metadata
from lograft.wire.messages.delete_topics import DeleteTopicsRequest


@pytest.mark.parametrize("seed", range(8))
def test_new_log_does_not_share_the_folder_of_the_old_one(seed: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.begin_topic("a", partitions=40)
        # The worker has begun to make the logs when the topic goes.
        await asyncio.sleep(0.0001 * seed)
        request = DeleteTopicsRequest(topic_names=["a"])
        await bench.controller.submit(
            lambda image: delete_topics(image, request, config=bench.config)
        )
        made = await bench.create_topic("a", partitions=40)
        made[3].append(
            memoryview(bytearray(batch_of(b"kept"))), now_ms=bench.broker.clock.wall_ms()
        )
        await asyncio.sleep(100)
        for partition in made:
            assert partition.log is not None
            folder = partition.log.directory
            assert read_partition_metadata(bench.life.disk, folder) == partition.topic_id
        assert made[3].high_watermark == 1

    bench = run(scenario, machine=new_machine(seed))
    assert not bench.halted
