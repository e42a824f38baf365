"""The permissions that requests need, and what their responses grant.

Both are dictionaries by item: a topic and partition, a group and -1, or `WHOLE` for the request."""

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.security.authorization import Need, Operation, ResourceType
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.messages.fetch import FetchRequest, FetchResponse
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from lograft.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lograft.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from lograft.wire.messages.produce import ProduceRequest, ProduceResponse

Item = tuple[str, int]
Needs = dict[Item, tuple[Need, ...]]
#: Returns the name of the topic with this ID; empty if the node does not know it.
NameOf = Callable[[UUID], str]

WHOLE: Final[Item] = ("", -1)
DENIED: Final = frozenset(
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
)


def topic(operation: Operation, name: str) -> Need:
    return Need(operation, ResourceType.TOPIC, name)


def group(operation: Operation, name: str) -> Need:
    return Need(operation, ResourceType.GROUP, name)


def needs_of(request: Any, known_topics: Iterable[str], name_of: NameOf) -> Needs:
    """Returns nothing for requests that are not checked."""
    match request:
        case ProduceRequest():
            return {
                (name, each.index): (topic(Operation.WRITE, name),)
                for data in request.topic_data
                if (name := data.name or name_of(data.topic_id))
                for each in data.partition_data
            }
        case FetchRequest():
            return {
                (name, each.partition): (topic(Operation.READ, name),)
                for data in request.topics
                if (name := data.topic or name_of(data.topic_id))
                for each in data.partitions
            }
        case ListOffsetsRequest():
            return {
                (data.name, each.partition_index): (topic(Operation.DESCRIBE, data.name),)
                for data in request.topics
                for each in data.partitions
            }
        case MetadataRequest():
            names = (
                known_topics
                if request.topics is None
                else [each.name or "" for each in request.topics]
            )
            return {(name, -1): (topic(Operation.DESCRIBE, name),) for name in names}
        case FindCoordinatorRequest():
            return {
                (key, -1): (group(Operation.DESCRIBE, key),) for key in request.coordinator_keys
            }
        case ConsumerGroupHeartbeatRequest():
            topics = request.subscribed_topic_names or ()
            return {
                WHOLE: (
                    group(Operation.READ, request.group_id),
                    *(topic(Operation.DESCRIBE, name) for name in topics),
                )
            }
        case OffsetCommitRequest():
            return {
                (data.name, each.partition_index): (
                    group(Operation.READ, request.group_id),
                    topic(Operation.READ, data.name),
                )
                for data in request.topics
                for each in data.partitions
            }
        case OffsetFetchRequest():
            return {
                (data.name, index): (
                    group(Operation.DESCRIBE, requested.group_id),
                    topic(Operation.DESCRIBE, data.name),
                )
                for requested in request.groups
                for data in requested.topics or ()
                for index in data.partition_indexes
            }
        case _:
            return {}


def codes_of(response: Any, name_of: NameOf) -> dict[Item, int]:
    """Returns the error codes of all items in the response."""
    match response:
        case ProduceResponse():
            return {
                (data.name or name_of(data.topic_id), each.index): each.error_code
                for data in response.responses
                for each in data.partition_responses
            }
        case FetchResponse():
            return {
                (data.topic or name_of(data.topic_id), each.partition_index): each.error_code
                # Records are never sent together with an error.
                if not each.records
                else ErrorCode.NONE
                for data in response.responses
                for each in data.partitions
            }
        case ListOffsetsResponse():
            return {
                (data.name, each.partition_index): each.error_code
                for data in response.topics
                for each in data.partitions
            }
        case MetadataResponse():
            return {(each.name or "", -1): each.error_code for each in response.topics}
        case FindCoordinatorResponse():
            return {(each.key, -1): each.error_code for each in response.coordinators}
        case ConsumerGroupHeartbeatResponse():
            return {WHOLE: response.error_code}
        case OffsetCommitResponse():
            return {
                (data.name, each.partition_index): each.error_code
                for data in response.topics
                for each in data.partitions
            }
        case OffsetFetchResponse():
            return {
                (data.name, each.partition_index): answered.error_code or each.error_code
                for answered in response.groups
                for data in answered.topics
                for each in data.partitions
            }
        case _:
            return {}
