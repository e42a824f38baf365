"""OffsetDelete, version 0: deletes committed offsets of a group.

Partitions of topics that the group subscribes to keep their offsets (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.topic_names import (
    add_responses,
    existing_partitions,
    known_topics,
    permitted_topics,
)
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
    # Even without an existing topic: the group may be denied.
    permitted = permitted_topics(context, TOPIC_READ, known_topics(image, request.topics))
    request.topics, rejected = existing_partitions(image, permitted)
    reply: OffsetDeleteResponse = await context.broker.groups.ask(
        request.group_id, lambda shard, ticket, _: delete_offsets(shard, request, ticket)
    )
    add_responses(reply.topics, (_error_response(topic, code) for topic, code in rejected))
    return reply


def _error_response(topic: OffsetDeleteRequestTopic, code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition in topic.partitions
        ],
    )
