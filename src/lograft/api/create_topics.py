"""CreateTopics, versions 2-7: creates topics, each with its own error code.

Responds when all of them are committed. v4: -1 for the broker's default number of partitions or
replicas. v5: the response has the configuration of each new topic. v7: topic ids.
"""

from typing import Final

from lograft.api.authorization import find_denied, permission_error
from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.mutation_quota import MutationQuota
from lograft.api.types import each_item
from lograft.metadata.topics import create_topics
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import CLUSTER_CREATE, TOPIC_CREATE, TOPIC_DESCRIBE_CONFIGS
from lograft.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

#: KIP-599.
STRICT_QUOTA_SINCE: Final = 6

API: Final = Api(
    key=19,
    versions=range(2, 8),
    needs=each_item(CLUSTER_CREATE, TOPIC_CREATE, TOPIC_DESCRIBE_CONFIGS),
)


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    names = [topic.name for topic in request.topics]
    denied_names = find_denied(context, TOPIC_CREATE, names, unless=CLUSTER_CREATE)
    permitted = CreateTopicsRequest(
        topics=[topic for topic in request.topics if topic.name not in denied_names],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    response = await _create(context, permitted)
    _hide_configs(context, response)
    for name in sorted(denied_names):
        error = permission_error(TOPIC_CREATE, name)
        response.topics.append(
            CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
        )
    return response


async def _create(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    quota = MutationQuota(context, strict_since=STRICT_QUOTA_SINCE)
    try:
        response = await decide(
            context,
            lambda image: create_topics(
                image,
                request,
                config=context.shared.config,
                new_id=context.shared.runtime.randomness.uuid,
                admit=quota.admit,
            ),
            timeout_ms=request.timeout_ms,
        )
    except LograftError as error:
        response = error_response(request, code_of(error), str(error))
    response.throttle_time_ms = quota.finish()
    return response


def _hide_configs(context: Context, response: CreateTopicsResponse) -> None:
    """Removes the configuration of topics that the principal may not describe (KIP-525)."""
    created = [topic for topic in response.topics if not topic.error_code]
    hidden = find_denied(context, TOPIC_DESCRIBE_CONFIGS, (topic.name for topic in created))
    for topic in created:
        if topic.name in hidden:
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


def error_response(
    request: CreateTopicsRequest, code: ErrorCode, message: str
) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=code, error_message=message)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )
