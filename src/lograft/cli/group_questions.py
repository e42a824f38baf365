"""What the commands `lograft groups …` ask a cluster: its groups, where they and its logs stand."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, TypeVar

from lograft.cli.asking import Asks
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.seams import Address
from lograft.wire import codec
from lograft.wire.errors import WireError
from lograft.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lograft.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from lograft.wire.records.consumer_protocol_assignment import ConsumerProtocolAssignment

T = TypeVar("T")
Place = tuple[str, int]

EARLIEST: Final = -2
LATEST: Final = -1
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

#: These pass when a coordinator is found or has loaded its groups.
PASSING: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
ATTEMPTS: Final = 50
ATTEMPT_SECONDS: Final = 0.2

METADATA_VERSION: Final = 12
LIST_GROUPS_VERSION: Final = 5
DESCRIBE_GROUPS_VERSION: Final = 6
CONSUMER_GROUP_DESCRIBE_VERSION: Final = 1
FIND_COORDINATOR_VERSION: Final = 4
OFFSET_FETCH_VERSION: Final = 9
LIST_OFFSETS_VERSION: Final = 7

_ASSIGNMENT_VERSION: Final = Struct(">h")
_ASSIGNMENT_VERSION_MAX: Final = 3


class GroupsRefused(LograftError):
    """The cluster does not do it, and says why."""


class Passing(LograftError):
    """An error of the kind that is over soon."""


@dataclass(frozen=True, slots=True)
class Listed:
    group: str
    #: "classic", "consumer", …
    type: str
    state: str
    #: "consumer" for all consumers, "" where nobody ever joined.
    protocol_type: str


@dataclass(frozen=True, slots=True)
class Member:
    member: str
    instance: str | None
    client: str
    host: str
    #: What it has now.
    partitions: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Description:
    group: str
    type: str
    state: str
    #: What its members agreed on, or the server's assignor.
    assignor: str
    members: list[Member] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Position:
    """-1: none."""

    offset: int
    #: When it was last reset, if that can be undone; -1 otherwise.
    reset_ms: int = -1
    before_reset: int = -1


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises for an error code."""
    if code == ErrorCode.none:
        return
    name = ErrorCode(code).name
    sentence = f"{what}: {message or name}"
    raise Passing(sentence) if code in PASSING else GroupsRefused(sentence)


async def addresses(ask: Asks) -> dict[int, Address]:
    response = await ask(MetadataRequest(topics=[]), METADATA_VERSION, MetadataResponse)
    return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}


async def at_coordinator(ask: Asks, group: str, question: Callable[[Address], Awaitable[T]]) -> T:
    """Asks the group's coordinator, again while there is none or it is loading."""
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(ATTEMPT_SECONDS)
        try:
            request = FindCoordinatorRequest(coordinator_keys=[group])
            answer = await ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
            (found,) = answer.coordinators
            check(found.error_code, f"group {group}", found.error_message)
            return await question(Address(found.host, found.port))
        except Passing as error:
            problem = str(error)
    raise GroupsRefused(
        f"{problem}; no coordinator after {ATTEMPTS * ATTEMPT_SECONDS:.0f} s, see whether enough"
        " brokers are up"
    )


async def list_groups(ask: Asks) -> list[Listed]:
    """Every broker knows those that it coordinates."""
    found: dict[str, Listed] = {}
    for node_id, address in sorted((await addresses(ask)).items()):
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(ATTEMPT_SECONDS)
            response = await ask(
                ListGroupsRequest(), LIST_GROUPS_VERSION, ListGroupsResponse, at=address
            )
            if response.error_code not in PASSING:
                break
        if response.error_code:
            check(response.error_code, f"broker {node_id}")
        for one in response.groups:
            found[one.group_id] = Listed(
                one.group_id, one.group_type.lower(), one.group_state, one.protocol_type
            )
    return sorted(found.values(), key=lambda one: one.group)


async def describe_group(ask: Asks, group: str) -> Description:
    """Of either protocol; one that nobody knows is Dead, as Kafka's tools say."""

    async def question(at: Address) -> Description:
        response = await ask(
            ConsumerGroupDescribeRequest(group_ids=[group]),
            CONSUMER_GROUP_DESCRIBE_VERSION,
            ConsumerGroupDescribeResponse,
            at=at,
        )
        (found,) = response.groups
        if found.error_code == ErrorCode.group_id_not_found:
            return await _describe_classic(ask, group, at)
        check(found.error_code, f"group {group}", found.error_message)
        return Description(
            group,
            CONSUMER,
            found.group_state,
            found.assignor_name,
            [
                Member(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    {
                        topic.topic_name: sorted(topic.partitions)
                        for topic in one.assignment.topic_partitions
                    },
                )
                for one in found.members
            ],
        )

    return await at_coordinator(ask, group, question)


async def _describe_classic(ask: Asks, group: str, at: Address) -> Description:
    response = await ask(
        DescribeGroupsRequest(groups=[group]),
        DESCRIBE_GROUPS_VERSION,
        DescribeGroupsResponse,
        at=at,
    )
    (found,) = response.groups
    if found.error_code != ErrorCode.group_id_not_found:
        check(found.error_code, f"group {group}", found.error_message)
    return Description(
        group,
        CLASSIC,
        found.group_state,
        found.protocol_data,
        [
            Member(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                _assigned(one.member_assignment),
            )
            for one in found.members
        ],
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


async def positions_of(ask: Asks, group: str) -> dict[Place, Position]:
    """All that the group has committed."""

    async def question(at: Address) -> dict[Place, Position]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        response = await ask(request, OFFSET_FETCH_VERSION, OffsetFetchResponse, at=at)
        (found,) = response.groups
        check(found.error_code, f"group {group}")
        return {
            (topic.name, one.partition_index): Position(
                one.committed_offset, one.reset_timestamp, one.offset_before_reset
            )
            for topic in found.topics
            for one in topic.partitions
        }

    return await at_coordinator(ask, group, question)


async def partitions_of(ask: Asks, topics: Collection[str]) -> dict[Place, int]:
    """The leader of each partition; topics that do not exist are left out."""
    if not topics:
        return {}
    response = await ask(
        MetadataRequest(topics=None, allow_auto_topic_creation=False),
        METADATA_VERSION,
        MetadataResponse,
    )
    return {
        (topic.name or "", partition.partition_index): partition.leader_id
        for topic in response.topics
        if topic.name in topics
        for partition in topic.partitions
    }


async def log_offsets(
    ask: Asks, leaders: dict[Place, int], timestamp: int, *, patient: bool = False
) -> dict[Place, int]:
    """EARLIEST, LATEST or the first offset from a time on (-1: all records are older). Where no
    leader answers it is left out; `patient`: that is an error."""
    by_leader: dict[int, list[Place]] = {}
    for place, leader in leaders.items():
        by_leader.setdefault(leader, []).append(place)
    brokers = await addresses(ask)
    found: dict[Place, int] = {}
    for leader, places in by_leader.items():
        if leader in brokers:
            request = ListOffsetsRequest(replica_id=-1, topics=_asked(places, timestamp))
            response = await ask(
                request, LIST_OFFSETS_VERSION, ListOffsetsResponse, at=brokers[leader]
            )
            for topic in response.topics:
                for one in topic.partitions:
                    if not one.error_code:
                        found[topic.name, one.partition_index] = one.offset
    for topic_name, partition in leaders if patient else ():
        if (topic_name, partition) not in found:
            raise GroupsRefused(
                f"{topic_name}-{partition} has no leader that answers; try again when it has one"
            )
    return found


def _asked(places: Iterable[Place], timestamp: int) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, partition in places:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        )
    return list(topics.values())
