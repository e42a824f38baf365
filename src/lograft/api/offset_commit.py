"""OffsetCommit, versions 2-10: where a group's members, or someone without a group, stand.

Answered when it is committed. A topic that does not exist has an error of its own; an error of the
group (its member is not one any more, another broker coordinates it) is told for every partition.
v6: leader epochs. v7: static members. v9: member epochs of the new protocol. v10: topic ids.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.topic_names import known_topics, named_topics
from lograft.coordination.offset_commands import commit_offsets
from lograft.model.errors import ErrorCode
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API: Final = Api(key=8, versions=range(2, 11))

TOPIC_IDS_SINCE: Final = 10


async def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    version = context.api_version
    find = named_topics if version >= TOPIC_IDS_SINCE else known_topics
    known, refused = find(context.broker.image, request.topics)
    reply = OffsetCommitResponse()
    if known:
        request.topics = known
        reply = await context.broker.groups.ask(
            request.group_id,
            lambda shard, ticket, now_ms: commit_offsets(
                shard, request, ticket, now_ms=now_ms, api_version=version
            ),
        )
    reply.topics += (_refused(topic, code) for topic, code in refused)
    return reply


def error_response(
    request: OffsetCommitRequest, code: ErrorCode, message: str
) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refused(topic, code) for topic in request.topics])


def _refused(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
            for asked in topic.partitions
        ],
    )
