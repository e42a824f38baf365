from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, directory_id, run

PartitionData = AssignReplicasToDirsRequestPartitionData


@scenario(run, log_dirs="/data,/second")
async def test_controller_stores_the_log_dirs_of_replicas(bench: Bench, /) -> None:
    await bench.create_topic("t", 2)
    topic_id, second = bench.topic_id("t"), directory_id("/second")

    async def assign(broker_epoch: int) -> AssignReplicasToDirsResponse:
        request = AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=broker_epoch,
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=second,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                PartitionData(partition_index=1),
                                PartitionData(partition_index=9),
                            ],
                        ),
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=UUID(int=404),
                            partitions=[PartitionData(partition_index=0)],
                        ),
                    ],
                )
            ],
        )
        return await bench.ask(request, 0, AssignReplicasToDirsResponse, role="controller")

    epoch = bench.broker.image.brokers[1].epoch
    assert (await assign(epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    reply = await assign(epoch)
    assert reply.error_code == 0
    codes = [
        [partition.error_code for partition in topic.partitions]
        for topic in reply.directories[0].topics
    ]
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_ID]
    assert codes == [[0, *unknown[0]], unknown[1]]
    partitions = bench.broker.image.topics[topic_id].partitions
    assert partitions[1].directories == (second,)
    assert partitions[0].directories != (second,)
