"""A topic that is deleted and created again while the files of the first one are being created."""

import asyncio

import pytest

from lograft.metadata.topics import delete_topics
from lograft.model.types import Offset
from lograft.storage.log_dirs import read_partition_metadata
from lograft.wire.messages.delete_topics import DeleteTopicsRequest
from tests.unit.broker.bench import Bench, StandInController, batch_of, new_machine, run


@pytest.mark.parametrize("seed", range(8))
def test_new_log_does_not_share_the_folder_of_the_old_one(seed: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.begin_topic("a", partitions=40)
        # The worker has started to create the logs when the topic is deleted.
        await asyncio.sleep(0.0001 * seed)
        request = DeleteTopicsRequest(topic_names=["a"])
        await bench.controller.submit(
            lambda image: delete_topics(image, request, config=bench.config)
        )
        partitions = await bench.create_topic("a", partitions=40)
        partitions[3].append(
            memoryview(bytearray(batch_of(b"kept"))), now_ms=bench.broker.clock.wall_ms()
        )
        await asyncio.sleep(100)
        for partition in partitions:
            assert partition.log is not None
            folder = partition.log.directory
            assert read_partition_metadata(bench.life.disk, folder) == partition.topic_id
        assert partitions[3].high_watermark == 1

    bench = run(scenario, machine=new_machine(seed))
    assert not bench.halted


@pytest.mark.parametrize("seed", range(12))
def test_the_recovery_point_of_the_old_log_says_nothing_of_the_new_one(seed: int) -> None:
    """Whenever the node dies, the new log is opened and used."""
    machine, controller = new_machine(seed), StandInController()

    async def first(bench: Bench) -> None:
        (old,) = await bench.create_topic("a", flush_messages="1")
        for _ in range(5):
            batch = memoryview(bytearray(batch_of(b"old")))
            old.append(batch, now_ms=bench.broker.clock.wall_ms())
        await old.wait_committed(Offset(5), timeout_ms=1000)
        # The checkpoint contains offset 5, or is about to be written, or is written later.
        await asyncio.sleep((70, 59.999, 1)[seed % 3])
        old.advance_log_start(Offset(4))
        request = DeleteTopicsRequest(topic_names=["a"])
        await bench.controller.submit(
            lambda image: delete_topics(image, request, config=bench.config)
        )
        bench.begin_topic("a")
        await asyncio.sleep(0.0003 * seed)

    run(first, machine=machine, controller=controller, stop=False)
    if seed % 2:
        machine.kill()
    else:
        machine.lose_power()

    async def second(bench: Bench) -> None:
        new = bench.partition("a")
        await new.wait_open(timeout_ms=10_000)
        assert not new.offline
        assert new.log is not None
        assert (new.log.log_start_offset, new.log.end_offset) == (0, 0)
        new.append(memoryview(bytearray(batch_of(b"new"))), now_ms=bench.broker.clock.wall_ms())

    run(second, machine=machine, controller=controller)
