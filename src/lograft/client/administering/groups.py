"""Groups of consumers, of either protocol: listed, described, emptied, deleted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final

from lograft.client.administering.partitions import failure
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
    #: "consumer" for all consumers, "" where nobody ever joined.
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group, and what it has.

    group = (await admin.describe_groups(["billing"]))["billing"]
    members: tuple[MemberDescription, ...] = group.members
    print([(one.client, one.partitions) for one in members])
    """

    member: str
    instance: str | None
    client: str
    host: str
    #: What it has now, and what it is to have, by topic.
    partitions: Mapping[str, list[int]]
    target: Mapping[str, list[int]]
    #: Of the consumer protocol; -1 in a classic group.
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group: str
    type: str
    state: str
    #: What its members agreed on, or the server's assignor.
    assignor: str
    #: The node that coordinates it.
    coordinator: int
    members: tuple[MemberDescription, ...] = ()
    #: Of the consumer protocol; -1 in a classic group.
    epoch: int = -1
    target_epoch: int = -1

    @property
    def has_consumers(self) -> bool:
        """Whether it is of a type that consumers join. Of other types the members are not known."""
        return self.type in CONSUMER_TYPES

    @property
    def readers(self) -> dict[TopicPartition, MemberDescription]:
        """Who has each partition now."""
        return {
            TopicPartition(topic, partition): member
            for member in self.members
            for topic, partitions in member.partitions.items()
            for partition in partitions
        }


async def list_groups(
    driver: RequestDriver, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    wanted_states = {one.lower() for one in as_iterable(states)}
    wanted_types = {one.lower() for one in as_iterable(types)}

    async def send(node: Node | None, ids: Sequence[int]) -> dict[int, list[GroupListing]]:
        (broker,) = ids
        response = await driver.send(node, ListGroupsRequest(), ListGroupsResponse)
        raise_for(response.error_code, f"groups of broker {broker}")
        return {
            broker: [
                GroupListing(
                    one.group_id, one.group_type.lower(), one.group_state, one.protocol_type
                )
                for one in response.groups
            ]
        }

    # Every broker knows those that it coordinates.
    told = await driver.results_of(await driver.list_broker_ids(), driver.find_brokers, send)
    found = {one.group: one for groups in told.values() for one in groups}
    return [
        one
        for _, one in sorted(found.items())
        if (not wanted_states or one.state.lower() in wanted_states)
        and (not wanted_types or one.type in wanted_types)
    ]


async def describe_groups(
    driver: RequestDriver, groups: Iterable[str]
) -> dict[str, GroupDescription]:
    async def send(
        node: Node | None, names: Sequence[str]
    ) -> dict[str, GroupDescription | ClientError]:
        assert isinstance(node, int)
        found: dict[str, GroupDescription | ClientError] = {}
        for one in await _describe_consumer_groups(driver, node, names):
            if one.error_code not in _NO_CONSUMER_GROUP:
                found[one.group_id] = failure(
                    one.error_code, f"group {one.group_id!r}", one.error_message
                ) or _consumer_group(one, node)
        rest = [name for name in names if name not in found]
        if rest:
            response = await driver.send(
                node, DescribeGroupsRequest(groups=rest), DescribeGroupsResponse
            )
            found.update((one.group_id, _classic_group(one, node)) for one in response.groups)
            missing = [one.group_id for one in response.groups if one.group_state in ("", DEAD)]
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
    """Of these groups, those that DescribeGroups does not know because of their type."""
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
        return {one.group_id: _undeleted(one.group_id, one.error_code) for one in response.results}

    await driver.results_of(groups, driver.find_group_coordinators, send)


async def remove_members(
    driver: RequestDriver, group: str, instances: Collection[str] | None = None, *, reason: str = ""
) -> None:
    if instances is None:
        described = (await describe_groups(driver, [group]))[group]
        identities = [
            MemberIdentity(
                member_id="" if one.instance is not None else one.member,
                group_instance_id=one.instance,
                reason=reason,
            )
            for one in described.members
        ]
    else:
        identities = [
            MemberIdentity(member_id="", group_instance_id=one, reason=reason)
            for one in as_iterable(instances)
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
        for one in response.members:
            raise_for(
                one.error_code,
                f"member {one.group_instance_id or one.member_id!r} of group {group!r}",
            )
        return dict.fromkeys(names, None)

    await driver.results_of([group], driver.find_group_coordinators, send)


def _consumer_group(told: ConsumerGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        told.group_id,
        CONSUMER,
        told.group_state,
        told.assignor_name,
        coordinator,
        tuple(
            MemberDescription(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                {
                    topic.topic_name: sorted(topic.partitions)
                    for topic in one.assignment.topic_partitions
                },
                {
                    topic.topic_name: sorted(topic.partitions)
                    for topic in one.target_assignment.topic_partitions
                },
                one.member_epoch,
            )
            for one in told.members
        ),
        told.group_epoch,
        told.assignment_epoch,
    )


def _classic_group(told: DescribedGroup, coordinator: int) -> GroupDescription | ClientError:
    if told.error_code and told.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        return broker_error(told.error_code, f"group {told.group_id!r}", told.error_message)
    members = []
    for one in told.members:
        has = _assigned(one.member_assignment)
        members.append(
            MemberDescription(
                one.member_id, one.group_instance_id, one.client_id, one.client_host, has, has
            )
        )
    return GroupDescription(
        told.group_id,
        CLASSIC,
        told.group_state or DEAD,
        told.protocol_data,
        coordinator,
        tuple(members),
    )


def _assigned(assignment: bytes) -> dict[str, list[int]]:
    """Nothing for members that are no consumers: only they know what their bytes mean."""
    if len(assignment) < _ASSIGNMENT_VERSION.size:
        return {}
    (version,) = _ASSIGNMENT_VERSION.unpack_from(assignment)
    try:
        read, _ = codec.read(
            ConsumerProtocolAssignment,
            min(max(version, 0), _ASSIGNMENT_VERSION_MAX),
            assignment,
            _ASSIGNMENT_VERSION.size,
        )
    except WireError:
        return {}
    return {topic.topic: sorted(topic.partitions) for topic in read.assigned_partitions}


def _undeleted(group: str, code: int) -> ClientError | None:
    advice = {
        ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first (`lograft groups describe"
        f" {group}` shows who they are)",
        ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group (`lograft groups list` shows those"
        " there are)",
        # Every version of DeleteGroups can delete groups of consumers.
        ErrorCode.UNSUPPORTED_VERSION: "the server cannot delete groups of its type (`lograft"
        " groups list` shows the type); only Apache Kafka deletes share and streams groups",
    }
    return failure(code, f"group {group!r}", advice.get(ErrorCode(code)) if code else None)
