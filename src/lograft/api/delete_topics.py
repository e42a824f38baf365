"""DeleteTopics, versions 1-6. By name, from v6 on also by id; refused with
delete.topic.enable=false.

v5: error sentences.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.metadata.topics import delete_topics
from lograft.model.errors import ErrorCode, LograftError
from lograft.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

API: Final = Api(key=20, versions=range(1, 7))


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    try:
        return await decide(
            context,
            lambda image: delete_topics(image, request, config=context.broker.config),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        return error_response(request, code_of(error), str(error))


def error_response(
    request: DeleteTopicsRequest, code: ErrorCode, message: str
) -> DeleteTopicsResponse:
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
            )
            for topic in wanted
        ]
    )
