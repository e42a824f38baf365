"""OffsetDelete, version 0: a group forgets where it stood in some partitions.

Partitions of topics that the group subscribes to keep their offsets (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.coordination.offset_commands import delete_offsets
from lograft.model.errors import ErrorCode
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API: Final = Api(key=47, versions=range(1))


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    image = context.broker.image
    unknown = [topic for topic in request.topics if topic.name not in image.topic_ids]
    if unknown:
        request.topics = [topic for topic in request.topics if topic.name in image.topic_ids]
    reply: OffsetDeleteResponse = await context.broker.groups.ask(
        request.group_id, lambda shard, ticket, _: delete_offsets(shard, request, ticket)
    )
    reply.topics += map(_unknown, unknown)
    return reply


def _unknown(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=asked.partition_index,
                error_code=ErrorCode.unknown_topic_or_partition,
            )
            for asked in topic.partitions
        ],
    )
