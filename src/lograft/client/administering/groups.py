"""Requests about consumer groups of both protocols: list, describe, remove members, delete."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final

from lograft.client.administering.partitions import error_if_failed
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import ClientError, UnsupportedByBroker, broker_error, raise_for
from lograft.client.group_types import CLASSIC, CONSUMER, CONSUMER_TYPES, find_other_types
from lograft.client.network import Node
from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from lograft.wire import codec
from lograft.wire.errors import WireError
from lograft.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lograft.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from lograft.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lograft.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lograft.wire.records.consumer_protocol_assignment import ConsumerProtocolAssignment

DEAD: Final = "Dead"
_ASSIGNMENT_VERSION: Final = Struct(">h")
_ASSIGNMENT_VERSION_MAX: Final = 3
_NO_CONSUMER_GROUP: Final = frozenset((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION))


@dataclass(frozen=True, slots=True)
class GroupListing:
    group: str
    #: "classic", "consumer", "share" …
    type: str
    state: str
    #: "consumer" for consumers, "" if no member has ever joined.
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group and its assignment.

    group = (await admin.describe_groups(["billing"]))["billing"]
    members: tuple[MemberDescription, ...] = group.members
    print([(member.client, member.partitions) for member in members])
    """

    member: str
    instance: str | None
    client: str
    host: str
    #: The current and the target assignment: partitions by topic.
    partitions: Mapping[str, list[int]]
    target: Mapping[str, list[int]]
    #: Member epoch of the consumer protocol; -1 in a classic group.
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group: str
    type: str
    state: str
    #: The assignor that the members have in common, or the one of the coordinator.
    assignor: str
    #: The node id of the coordinator.
    coordinator: int
    members: tuple[MemberDescription, ...] = ()
    #: Group epochs of the consumer protocol; -1 in a classic group.
    epoch: int = -1
    target_epoch: int = -1

    @property
    def has_consumers(self) -> bool:
        """Whether consumers can join groups of this type. The members of other types are not
        known."""
        return self.type in CONSUMER_TYPES

    @property
    def owners(self) -> dict[TopicPartition, MemberDescription]:
        """The owner of each assigned partition."""
        return {
            TopicPartition(topic, partition): member
            for member in self.members
            for topic, partitions in member.partitions.items()
            for partition in partitions
        }


async def list_groups(
    driver: RequestDriver, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    state_filter = {state.lower() for state in as_iterable(states)}
    type_filter = {group_type.lower() for group_type in as_iterable(types)}

    async def send(node: Node | None, ids: Sequence[int]) -> dict[int, list[GroupListing]]:
        (broker,) = ids
        response = await driver.send(node, ListGroupsRequest(), ListGroupsResponse)
        raise_for(response.error_code, f"groups of broker {broker}")
        return {
            broker: [
                GroupListing(
                    group.group_id, group.group_type.lower(), group.group_state, group.protocol_type
                )
                for group in response.groups
            ]
        }

    # Every broker lists the groups that it coordinates.
    by_broker = await driver.results_of(await driver.list_broker_ids(), driver.find_brokers, send)
    listings = {listing.group: listing for groups in by_broker.values() for listing in groups}
    return [
        listing
        for _, listing in sorted(listings.items())
        if (not state_filter or listing.state.lower() in state_filter)
        and (not type_filter or listing.type in type_filter)
    ]


async def describe_groups(
    driver: RequestDriver, groups: Iterable[str]
) -> dict[str, GroupDescription]:
    async def send(
        node: Node | None, names: Sequence[str]
    ) -> dict[str, GroupDescription | ClientError]:
        assert isinstance(node, int)
        found: dict[str, GroupDescription | ClientError] = {}
        for group in await _describe_consumer_groups(driver, node, names):
            if group.error_code not in _NO_CONSUMER_GROUP:
                found[group.group_id] = error_if_failed(
                    group.error_code, f"group {group.group_id!r}", group.error_message
                ) or _describe_consumer_group(group, node)
        rest = [name for name in names if name not in found]
        if rest:
            response = await driver.send(
                node, DescribeGroupsRequest(groups=rest), DescribeGroupsResponse
            )
            found.update(
                (group.group_id, _describe_classic_group(group, node)) for group in response.groups
            )
            missing = [
                group.group_id for group in response.groups if group.group_state in ("", DEAD)
            ]
            if missing:
                found.update(await _describe_other_types(driver, node, missing))
        return found

    return await driver.results_of(groups, driver.find_group_coordinators, send)


async def _describe_consumer_groups(
    driver: RequestDriver, node: Node, names: Sequence[str]
) -> list[ConsumerGroup]:
    try:
        response = await driver.send(
            node,
            ConsumerGroupDescribeRequest(group_ids=list(names)),
            ConsumerGroupDescribeResponse,
        )
    except UnsupportedByBroker:
        return []
    return response.groups


async def _describe_other_types(
    driver: RequestDriver, node: int, names: Sequence[str]
) -> dict[str, GroupDescription]:
    """Returns the groups that DescribeGroups does not return because of their type."""
    others = await find_other_types(partial(driver.send, node))
    return {
        name: GroupDescription(
            name, others[name].group_type.lower(), others[name].group_state, "", node
        )
        for name in names
        if name in others
    }


async def delete_groups(driver: RequestDriver, groups: Iterable[str]) -> None:
    async def send(node: Node | None, names: Sequence[str]) -> dict[str, ClientError | None]:
        response = await driver.send(
            node, DeleteGroupsRequest(groups_names=list(names)), DeleteGroupsResponse
        )
        return {
            result.group_id: _deletion_error(result.group_id, result.error_code)
            for result in response.results
        }

    await driver.results_of(groups, driver.find_group_coordinators, send)


async def remove_members(
    driver: RequestDriver, group: str, instances: Collection[str] | None = None, *, reason: str = ""
) -> None:
    if instances is None:
        described = (await describe_groups(driver, [group]))[group]
        identities = [
            MemberIdentity(
                member_id="" if member.instance is not None else member.member,
                group_instance_id=member.instance,
                reason=reason,
            )
            for member in described.members
        ]
    else:
        identities = [
            MemberIdentity(member_id="", group_instance_id=instance, reason=reason)
            for instance in as_iterable(instances)
        ]
    if not identities:
        return

    async def send(node: Node | None, names: Sequence[str]) -> dict[str, None]:
        response = await driver.send(
            node,
            LeaveGroupRequest(group_id=group, members=identities),
            LeaveGroupResponse,
            at_least=3,
        )
        raise_for(response.error_code, f"group {group!r}")
        for member in response.members:
            raise_for(
                member.error_code,
                f"member {member.group_instance_id or member.member_id!r} of group {group!r}",
            )
        return dict.fromkeys(names, None)

    await driver.results_of([group], driver.find_group_coordinators, send)


def _describe_consumer_group(group: ConsumerGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        CONSUMER,
        group.group_state,
        group.assignor_name,
        coordinator,
        tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                {
                    topic.topic_name: sorted(topic.partitions)
                    for topic in member.assignment.topic_partitions
                },
                {
                    topic.topic_name: sorted(topic.partitions)
                    for topic in member.target_assignment.topic_partitions
                },
                member.member_epoch,
            )
            for member in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _describe_classic_group(
    group: DescribedGroup, coordinator: int
) -> GroupDescription | ClientError:
    if group.error_code and group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        return broker_error(group.error_code, f"group {group.group_id!r}", group.error_message)
    members = []
    for member in group.members:
        assigned = _decode_assignment(member.member_assignment)
        members.append(
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                assigned,
                assigned,
            )
        )
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.group_state or DEAD,
        group.protocol_data,
        coordinator,
        tuple(members),
    )


def _decode_assignment(assignment: bytes) -> dict[str, list[int]]:
    """Decodes the assignment of a consumer. Returns nothing for members that are not consumers,
    whose assignments have another format."""
    if len(assignment) < _ASSIGNMENT_VERSION.size:
        return {}
    (version,) = _ASSIGNMENT_VERSION.unpack_from(assignment)
    try:
        decoded, _ = codec.read(
            ConsumerProtocolAssignment,
            min(max(version, 0), _ASSIGNMENT_VERSION_MAX),
            assignment,
            _ASSIGNMENT_VERSION.size,
        )
    except WireError:
        return {}
    return {topic.topic: sorted(topic.partitions) for topic in decoded.assigned_partitions}


def _deletion_error(group: str, code: int) -> ClientError | None:
    advice = {
        ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first (`lograft groups describe"
        f" {group}` lists them)",
        ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist (`lograft groups list` shows all"
        " groups)",
        # Every version of DeleteGroups can delete consumer groups.
        ErrorCode.UNSUPPORTED_VERSION: "the broker cannot delete groups of its type (`lograft"
        " groups list` shows the type); only Apache Kafka deletes share and streams groups",
    }
    return error_if_failed(code, f"group {group!r}", advice.get(ErrorCode(code)) if code else None)
