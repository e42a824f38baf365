"""OffsetDelete, version 0: a group forgets where it stood in some partitions.

Partitions of topics that the group subscribes to keep their offsets (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.topic_names import add_answers, existing_partitions, known_topics, permitted_topics
from lograft.api.types import each_item, group_of, whole_request
from lograft.coordination.offset_commands import delete_offsets
from lograft.model.errors import ErrorCode
from lograft.security.authorization import GROUP_DELETE, TOPIC_READ
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API: Final = Api(
    key=47,
    versions=range(1),
    needs=whole_request(GROUP_DELETE, names=group_of) + each_item(TOPIC_READ),
)


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    image = context.broker.image
    # Without a topic that exists, too: the group may not.
    permitted = permitted_topics(context, TOPIC_READ, known_topics(image, request.topics))
    request.topics, refused = existing_partitions(image, permitted)
    reply: OffsetDeleteResponse = await context.broker.groups.ask(
        request.group_id, lambda shard, ticket, _: delete_offsets(shard, request, ticket)
    )
    add_answers(reply.topics, (_refused(topic, code) for topic, code in refused))
    return reply


def _refused(topic: OffsetDeleteRequestTopic, code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code)
            for asked in topic.partitions
        ],
    )
