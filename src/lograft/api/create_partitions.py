"""CreatePartitions, versions 0-3: adds partitions to existing topics."""

from typing import Final

from lograft.api.authorization import find_denied, permission_error
from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.mutation_quota import MutationQuota
from lograft.api.types import each_item
from lograft.metadata.partitions import create_partitions
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import TOPIC_ALTER
from lograft.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

#: KIP-599.
STRICT_QUOTA_SINCE: Final = 3

API: Final = Api(key=37, versions=range(4), needs=each_item(TOPIC_ALTER))


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    denied_names = find_denied(context, TOPIC_ALTER, (topic.name for topic in request.topics))
    permitted = CreatePartitionsRequest(
        topics=[topic for topic in request.topics if topic.name not in denied_names],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    response = await _create(context, permitted)
    for name in sorted(denied_names):
        error = permission_error(TOPIC_ALTER, name)
        response.results.append(
            CreatePartitionsTopicResult(
                name=name, error_code=error.code, error_message=error.message
            )
        )
    return response


async def _create(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    quota = MutationQuota(context, strict_since=STRICT_QUOTA_SINCE)
    try:
        response = await decide(
            context,
            lambda image: create_partitions(image, request, admit=quota.admit),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        response = error_response(request, code_of(error), str(error))
    response.throttle_time_ms = quota.finish()
    return response


def error_response(
    request: CreatePartitionsRequest, code: ErrorCode, message: str
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )
