"""DeleteTopics, versions 1-6: deletes topics by name, from v6 on also by id.

Rejected if delete.topic.enable=false. v5: error messages.
"""

from typing import Final

from lograft.api.authorization import find_denied, permission_error
from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.mutation_quota import MutationQuota
from lograft.api.types import each_item
from lograft.metadata.image import MetadataImage
from lograft.metadata.topics import delete_topics
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import TOPIC_DELETE, TOPIC_DESCRIBE
from lograft.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

#: KIP-599.
STRICT_QUOTA_SINCE: Final = 5

API: Final = Api(key=20, versions=range(1, 7), needs=each_item(TOPIC_DELETE, TOPIC_DESCRIBE))


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    quota = MutationQuota(context, strict_since=STRICT_QUOTA_SINCE)
    try:
        response = await decide(
            context,
            lambda image: _delete(context, image, request, quota),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        response = error_response(request, code_of(error), str(error))
    response.throttle_time_ms = quota.finish()
    return response


def _delete(
    context: Context, image: MetadataImage, request: DeleteTopicsRequest, quota: MutationQuota
) -> ControllerResult[DeleteTopicsResponse]:
    """Permissions refer to names: ids are resolved in the image on which the decision is made."""
    config = context.shared.config
    if context.authorizer is None:
        return delete_topics(image, request, config=config, admit=quota.admit)
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    topics = [(topic, _name_of(image, topic)) for topic in states]
    denied_names = find_denied(context, TOPIC_DELETE, (name for _, name in topics if name))
    visible = denied_names - find_denied(context, TOPIC_DESCRIBE, denied_names, is_filter=True)
    allowed = [topic for topic, name in topics if name not in denied_names]
    outcome = delete_topics(
        image,
        DeleteTopicsRequest(
            topics=allowed if request.topics else [],
            topic_names=[] if request.topics else [topic.name or "" for topic in allowed],
            timeout_ms=request.timeout_ms,
        ),
        config=config,
        admit=quota.admit,
    )
    for topic, name in topics:
        if name in denied_names:
            error = permission_error(TOPIC_DELETE, name if topic.name or name in visible else "")
            outcome.reply.responses.append(
                DeletableTopicResult(
                    name=topic.name or (name if name in visible else None),
                    topic_id=topic.topic_id,
                    error_code=error.code,
                    error_message=error.message,
                )
            )
    return outcome


def _name_of(image: MetadataImage, topic: DeleteTopicState) -> str:
    """Returns an empty name for an unknown id."""
    if topic.name is not None:
        return topic.name
    state = image.topics.get(topic.topic_id)
    return "" if state is None else state.name


def error_response(
    request: DeleteTopicsRequest, code: ErrorCode, message: str
) -> DeleteTopicsResponse:
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
            )
            for topic in states
        ]
    )
