"""CreateTopics, versions 2-7. Each topic by itself; the answer comes when all are committed.

v4: -1 partitions or replicas for the broker's defaults. v5: the settings of each new topic in the
answer. v7: topic ids.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.metadata.topics import create_topics
from lograft.model.errors import ErrorCode, LograftError
from lograft.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

API: Final = Api(key=19, versions=range(2, 8))


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        return await decide(
            context,
            lambda image: create_topics(
                image,
                request,
                config=context.broker.config,
                new_id=context.broker.runtime.randomness.uuid,
            ),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        return error_response(request, code_of(error), str(error))


def error_response(
    request: CreateTopicsRequest, code: ErrorCode, message: str
) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=code, error_message=message)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )
