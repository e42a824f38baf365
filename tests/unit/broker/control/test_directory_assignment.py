import asyncio
from uuid import UUID

from lograft.broker.control.directory_assignment import DirectoryAssigner
from lograft.simulation.machine import Life
from tests.unit.broker.quorum.metadata_nodes import ControlNode, new_machine

FIRST, SECOND = UUID(int=1001), UUID(int=1002)


def test_the_controller_learns_where_replicas_lie() -> None:
    async def work(life: Life) -> None:
        node = await (await ControlNode.start(life)).with_broker()
        epoch = node.image.brokers[1].epoch
        assigner = DirectoryAssigner(
            node.config.node_id,
            broker_epoch=lambda: epoch,
            metadata=node.metadata,
            link=node.link,
        )
        life.runtime.spawn(assigner.run(), name="directories")
        await node.create("t", partitions=3)
        topic = node.image.topic("t")
        assert topic is not None
        for index, directory in enumerate([FIRST, SECOND, node.directory_id]):
            assigner.on_opened(topic.topic_id, index, directory)
        assigner.on_opened(UUID(int=404), 0, FIRST)
        await asyncio.sleep(1)
        assert [state.directories for state in topic.partitions.values()] == [
            (FIRST,),
            (SECOND,),
            (node.directory_id,),
        ]
        end = node.driver.log.end_offset
        assigner.on_opened(topic.topic_id, 0, FIRST)
        await asyncio.sleep(1)
        assert node.driver.log.end_offset == end

    machine = new_machine()
    life = machine.boot()
    machine.loop.run_until_complete(life.run(work(life), name="main"))
    assert not life.failures


def test_what_could_not_be_told_is_told_again() -> None:
    async def work(life: Life) -> None:
        node = await (await ControlNode.start(life)).with_broker()
        await node.create("t")
        topic = node.image.topic("t")
        assert topic is not None
        epoch = 0
        assigner = DirectoryAssigner(
            node.config.node_id,
            broker_epoch=lambda: epoch,
            metadata=node.metadata,
            link=node.link,
        )
        life.runtime.spawn(assigner.run(), name="directories")
        assigner.on_opened(topic.topic_id, 0, FIRST)
        await asyncio.sleep(2)
        assert topic.partitions[0].directories == (node.directory_id,)
        assigner.on_opened(topic.topic_id, 0, SECOND)
        epoch = node.image.brokers[1].epoch
        await asyncio.sleep(2)
        assert topic.partitions[0].directories == (SECOND,)

    machine = new_machine()
    life = machine.boot()
    machine.loop.run_until_complete(life.run(work(life), name="main"))
    assert not life.failures
