"""OffsetFetch, versions 1-10: committed offsets of groups, for some topics or all.

Offset -1 without an error means that nothing is committed. A topic that another group has claimed
(subscription.mode=ptp) gets POLICY_VIOLATION, so that a consumer that assigns partitions to itself
is rejected before it fetches; a request for all topics returns every committed offset. v2: all
topics (null), a group error. v5: leader epochs. v7: require_stable: partitions with an open
transaction get UNSTABLE_OFFSET_COMMIT. v8: several groups. v9: member epochs of the new protocol.
v10: topic ids.
"""

from typing import Final

from lograft.api.authorization import find_denied, is_allowed, permission_error
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.topic_names import named_topics
from lograft.api.types import each_item
from lograft.coordination.offset_fetch import fetch_offsets
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import NO_EPOCH, NO_OFFSET
from lograft.security.authorization import GROUP_DESCRIBE, TOPIC_DESCRIBE
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

API: Final = Api(key=9, versions=range(1, 11), needs=each_item(GROUP_DESCRIBE, TOPIC_DESCRIBE))

GROUP_ERRORS_SINCE: Final = 2
GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10


async def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    version = context.api_version
    if version >= GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                await _fetch(context, group, request.require_stable) for group in request.groups
            ]
        )
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    fetched = await _fetch(context, group, request.require_stable)
    if fetched.error_code and version < GROUP_ERRORS_SINCE:
        code = ErrorCode(fetched.error_code)
        fetched.topics = [_error_response(topic, code) for topic in topics or ()]
    return OffsetFetchResponse(
        error_code=fetched.error_code, topics=[_to_older_topic(topic) for topic in fetched.topics]
    )


async def _fetch(
    context: Context, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    by_id = context.api_version >= TOPIC_IDS_SINCE
    image = context.broker.image
    rejected: list[tuple[OffsetFetchRequestTopics, ErrorCode]] = []
    if group.topics is not None and by_id:
        group.topics, rejected = named_topics(image, group.topics)
    try:
        if not is_allowed(context, GROUP_DESCRIBE, group.group_id):
            raise permission_error(GROUP_DESCRIBE, group.group_id)
        rejected += _drop_denied(context, group)
        rejected += await _drop_claimed(context, group)
        reply: OffsetFetchResponseGroup = await context.broker.groups.ask(
            group.group_id,
            lambda shard, ticket, _: fetch_offsets(
                shard, group, ticket, require_stable=require_stable
            ),
        )
    except LograftError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code_of(error))
    if group.topics is None:
        names = (topic.name for topic in reply.topics)
        hidden = find_denied(context, TOPIC_DESCRIBE, names, is_filter=True)
        reply.topics = [topic for topic in reply.topics if topic.name not in hidden]
    if by_id and group.topics is None:
        reply.topics = _with_ids(image, reply.topics)
    reply.topics += (_error_response(topic, code) for topic, code in rejected)
    return reply


def _drop_denied(
    context: Context, group: OffsetFetchRequestGroup
) -> list[tuple[OffsetFetchRequestTopics, ErrorCode]]:
    """Removes topics that the principal may not describe from the request and returns them."""
    topics = group.topics or []
    hidden = find_denied(context, TOPIC_DESCRIBE, (topic.name for topic in topics))
    if not hidden:
        return []
    group.topics = [topic for topic in topics if topic.name not in hidden]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [(topic, code) for topic in topics if topic.name in hidden]


async def _drop_claimed(
    context: Context, group: OffsetFetchRequestGroup
) -> list[tuple[OffsetFetchRequestTopics, ErrorCode]]:
    """Removes topics that another group has claimed from the request and returns them."""
    broker = context.broker
    if not broker.image.claims or not group.topics or not group.group_id:
        return []
    broker.groups.led_for(group.group_id)  # Raises Rejected if it is coordinated elsewhere.
    names = [topic.name for topic in group.topics]
    claimed = await broker.claims.find_refused(group.group_id, names)
    rejected = [
        (topic, claimed[topic.name].code) for topic in group.topics if topic.name in claimed
    ]
    group.topics = [topic for topic in group.topics if topic.name not in claimed]
    return rejected


def _with_ids(
    image: MetadataImage, topics: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    """Omits offsets of deleted topics, which have no id."""
    known = [topic for topic in topics if topic.name in image.topic_ids]
    for topic in known:
        topic.topic_id = image.topic_ids[topic.name]
    return known


def _error_response(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=NO_OFFSET,
                committed_leader_epoch=NO_EPOCH,
                metadata="",
                error_code=code,
            )
            for partition in topic.partition_indexes
        ],
    )


def _to_older_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=partition.partition_index,
                committed_offset=partition.committed_offset,
                committed_leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error_code,
            )
            for partition in topic.partitions
        ],
    )
