"""Types of groups: consumers use classic and consumer groups only. Share groups and streams groups
share the same group ids, and a broker rejects consumers with the id of such a group. The error
codes do not show the type of the group; ListGroups does.
"""

from typing import Final, Protocol, TypeVar

from lograft.client.errors import (
    BrokerError,
    NotAuthorized,
    UnsupportedByBroker,
    broker_error,
    raise_for,
)
from lograft.model.errors import ErrorCode
from lograft.wire.message import Message
from lograft.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

R = TypeVar("R", bound=Message)

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
#: Types of groups that consumers join and commit to.
CONSUMER_TYPES: Final = (CLASSIC, CONSUMER)
#: The other types of Apache Kafka 4.3.
_OTHER_TYPES: Final = ("share", "streams")
#: Since this version of ListGroups a group has a type.
_TYPES_SINCE: Final = 5


class SendRequest(Protocol):
    """Sends a request to the coordinator of the group."""

    async def __call__(self, request: Message, response_type: type[R], *, at_least: int) -> R: ...


async def find_other_types(send: SendRequest) -> dict[str, ListedGroup]:
    """Returns the groups of a broker that consumers cannot use. Empty if the broker does not return
    group types, or does not authorize the client to list groups."""
    try:
        response = await send(
            ListGroupsRequest(types_filter=list(_OTHER_TYPES)),
            ListGroupsResponse,
            at_least=_TYPES_SINCE,
        )
        raise_for(response.error_code, "listing group types")
    except (UnsupportedByBroker, NotAuthorized):
        return {}
    return {
        group.group_id: group
        for group in response.groups
        if group.group_type.lower() not in CONSUMER_TYPES
    }


def explain_other_type(group_type: str, *, is_lograft: bool) -> str:
    if is_lograft:
        return (
            f"it is a {group_type.lower()} group, which this release does not support: use another"
            " group id"
        )
    return f"it is a {group_type.lower()} group, not a consumer group: use another group id"


def other_type_error(group: str, group_type: str) -> BrokerError:
    """Returns the error with the code that a broker returns for a commit to such a group."""
    return broker_error(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"group {group!r}",
        explain_other_type(group_type, is_lograft=True),
    )
