from lograft.model.errors import ErrorCode
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import commit, fetch_all, play
from tests.unit.broker.bench import Bench


@scenario(play)
async def test_offsets_can_be_deleted(bench: Bench, /) -> None:
    await commit(bench, 9, "t", {0: 42, 1: 7})

    async def delete(group: str, topic: str) -> OffsetDeleteResponse:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 2)]
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)],
        )
        return await bench.ask(request, 0, OffsetDeleteResponse)

    assert (await delete("nobody", "t")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (unknown,) = (await delete("g", "nowhere")).topics
    assert {partition.error_code for partition in unknown.partitions} == {3}
    (topic,) = (await delete("g", "t")).topics
    assert [partition.error_code for partition in topic.partitions] == [0, 0]
    assert (await fetch_all(bench, 9))["t"].keys() == {1}
