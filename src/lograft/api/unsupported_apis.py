"""APIs of Kafka 4.3.1 that this release does not have: share groups and streams groups.

They are not advertised, so clients should not send them. A client that does gets a response with
UNSUPPORTED_VERSION in every error code, instead of a closed connection.
"""

from collections.abc import Callable
from typing import Any, Final

from lograft.api.context import Context
from lograft.api.types import NOTHING
from lograft.model.errors import ErrorCode
from lograft.wire.apis import response_class
from lograft.wire.message import Message

#: Share groups (76-79, 83-87, 90-92) and streams groups (88, 89).
KEYS: Final = frozenset({76, 77, 78, 79, *range(83, 93)})
#: Every request is rejected, whatever the principal's permissions.
NEEDS: Final = NOTHING
REASON: Final = "This release of Lograft does not support this API."


def handle(context: Context, request: Message) -> Message:
    return error_response(request, ErrorCode.UNSUPPORTED_VERSION, REASON)


def error_response(request: Any, code: ErrorCode, message: str) -> Message:
    """Responses without an error code for the whole request have an error code for each group or
    for each partition."""
    kind: Callable[..., Message] = response_class(request.KEY)
    fields = {field.name: field for field in response_class(request.KEY).FIELDS}
    error = {"error_code": code, "error_message": message}
    if "error_code" in fields:
        return kind(**error)
    if "groups" in fields:
        group: Any = fields["groups"].element
        return kind(groups=[group(group_id=name, **error) for name in _group_ids(request)])
    topic: Any = fields["results"].element
    partition: Any = next(field for field in topic.FIELDS if field.name == "partitions").element
    return kind(
        results=[
            topic(
                topic_id=requested.topic_id,
                partitions=[
                    partition(partition=data.partition, **error) for data in requested.partitions
                ],
            )
            for requested in request.topics
        ]
    )


def _group_ids(request: Any) -> list[str]:
    if hasattr(request, "group_ids"):
        return list(request.group_ids)
    return [group.group_id for group in request.groups]
