"""AlterPartition on the controller's listener; the rules are tested with the decision."""

from lograft.model.errors import ErrorCode
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_leader_is_accepted_and_unknown_broker_rejected(bench: Bench, /) -> None:
    await bench.create_topic("t")
    epoch = bench.broker.image.brokers[1].epoch
    topic_id = bench.broker.image.topic_ids["t"]

    async def propose(broker_epoch: int) -> AlterPartitionResponse:
        proposal = AlterPartitionRequestPartitionData(partition_index=0, new_isr=[1])
        topic = AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[proposal])
        request = AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch, topics=[topic])
        return await bench.ask(request, 2, AlterPartitionResponse, role="controller")

    response = await propose(epoch)
    assert response.error_code == 0
    assert response.topics[0].partitions[0].isr == [1]
    assert (await propose(epoch + 9)).error_code == ErrorCode.STALE_BROKER_EPOCH
