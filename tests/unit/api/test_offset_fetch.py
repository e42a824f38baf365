from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import IDS_SINCE, commit, play
from tests.unit.broker.bench import Bench


@scenario(play)
async def test_fetching_some_partitions_in_every_version(bench: Bench, /) -> None:
    await commit(bench, 9, "t", {0: 42})
    for version in range(1, 8):
        asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        old = OffsetFetchRequest(group_id="g", topics=asked)
        (topic,) = (await bench.ask(old, version, OffsetFetchResponse)).topics
        assert [partition.committed_offset for partition in topic.partitions] == [42, -1]
        assert [partition.error_code for partition in topic.partitions] == [0, 0]
    for version in range(8, 11):
        asked_now = OffsetFetchRequestTopics(partition_indexes=[0, 1])
        gone = OffsetFetchRequestTopics(partition_indexes=[0])
        if version >= IDS_SINCE:
            asked_now.topic_id = bench.broker.image.topic_ids["t"]
            gone.topic_id = UUID(int=99)
        else:
            asked_now.name, gone.name = "t", "gone"
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="g", topics=[asked_now, gone]),
                OffsetFetchRequestGroup(group_id="unknown", topics=[asked_now]),
            ]
        )
        known, unknown = (await bench.ask(request, version, OffsetFetchResponse)).groups
        assert [partition.committed_offset for partition in known.topics[0].partitions] == [42, -1]
        code = ErrorCode.UNKNOWN_TOPIC_ID if version >= IDS_SINCE else 0
        assert known.topics[1].partitions[0].error_code == code
        assert [partition.committed_offset for partition in unknown.topics[0].partitions] == [
            -1,
            -1,
        ]
        assert unknown.error_code == 0
