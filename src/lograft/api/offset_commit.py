"""OffsetCommit, versions 2-10: commits offsets of a group's members, or without membership.

Responds when the offsets are committed. A topic that does not exist, or that another group has
claimed (subscription.mode=ptp: POLICY_VIOLATION), has its own error code; an error of the group
(unknown member, another coordinator) is set for every partition. v6: leader epochs. v7: static
members. v9: member epochs of the new protocol. v10: topic ids. Lograft extends v8: with
`reset_action` an administrator resets the offsets of an active group, all or nothing.
"""

from collections.abc import Sequence
from typing import Final

from lograft.api.authorization import permission_error
from lograft.api.claimed_topics import check_claims
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.topic_names import (
    add_responses,
    existing_partitions,
    known_topics,
    named_topics,
    permitted_topics,
)
from lograft.api.types import each_item, group_of, whole_request
from lograft.coordination.offset_commands import commit_offsets
from lograft.coordination.offset_reset import reset_offsets
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode, LograftError, Rejected
from lograft.model.types import ResetAction
from lograft.security.authorization import GROUP_READ, TOPIC_READ
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API: Final = Api(
    key=8,
    versions=range(2, 11),
    needs=whole_request(GROUP_READ, names=group_of) + each_item(TOPIC_READ),
)

TOPIC_IDS_SINCE: Final = 10


async def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    version = context.api_version
    find = named_topics if version >= TOPIC_IDS_SINCE else known_topics
    image = context.broker.metadata.image
    permitted = permitted_topics(context, TOPIC_READ, find(image, request.topics))
    for topic in permitted.known:
        # Like Kafka, the records keep topic ids too, however the request identifies topics.
        topic.topic_id = image.topic_ids[topic.name]
    existing = existing_partitions(image, permitted)
    known, rejected = await check_claims(context, request.group_id, existing)
    if request.reset_action != ResetAction.NONE:
        _reject_first(image, rejected)
        request.topics = known
        response: OffsetCommitResponse = await context.broker.groups.ask(
            request.group_id,
            lambda shard, ticket, now_ms: reset_offsets(shard, request, ticket, now_ms),
        )
        return response
    reply = OffsetCommitResponse()
    if known:
        request.topics = known
        try:
            reply = await context.broker.groups.ask(
                request.group_id,
                lambda shard, ticket, now_ms: commit_offsets(
                    shard, request, ticket, now_ms=now_ms, api_version=version
                ),
            )
        except LograftError as error:
            reply = error_response(request, code_of(error), str(error))
    add_responses(reply.topics, (_error_response(topic, code) for topic, code in rejected))
    return reply


def _reject_first(
    image: MetadataImage, rejected: Sequence[tuple[OffsetCommitRequestTopic, ErrorCode]]
) -> None:
    for topic, code in rejected:
        name = topic.name or topic.topic_id
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise permission_error(TOPIC_READ, str(name))
        if code is ErrorCode.POLICY_VIOLATION:
            raise Rejected(code, f"Another group has claimed topic {name} (subscription.mode=ptp).")
        if topic.name in image.topic_ids:
            index = topic.partitions[0].partition_index
            raise Rejected(code, f"Partition {name}-{index} does not exist.")
        raise Rejected(code, f"Topic {name} does not exist.")


def error_response(
    request: OffsetCommitRequest, code: ErrorCode, message: str
) -> OffsetCommitResponse:
    response = OffsetCommitResponse(
        topics=[_error_response(topic, code) for topic in request.topics]
    )
    if request.reset_action != ResetAction.NONE:
        response.error_message = message
    return response


def _error_response(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=code
            )
            for partition in topic.partitions
        ],
    )
