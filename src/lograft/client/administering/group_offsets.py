"""Where groups stand: their committed offsets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lograft.client.administering.partitions import (
    by_topic,
    failure,
)
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.consuming.committed_offsets import ERROR_REASONS
from lograft.client.errors import ClientError, UnsupportedByBroker, broker_error, raise_for
from lograft.client.network import Node
from lograft.model.errors import ErrorCode
from lograft.model.types import RESET_GENERATION, ResetAction, TopicPartition
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

#: What a server says that steps over the action and sees a commit of nobody.
_NOT_UNDERSTOOD: Final = frozenset(
    (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION)
)
#: Topics by name; from 10 on they are named by their ids.
_COMMIT_VERSIONS: Final = (8, 9)
_FETCH_VERSIONS: Final = (8, 9)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    #: When it was last reset, if that can be undone; -1 otherwise.
    reset_ms: int = -1
    #: Where an undo goes back to; -1: to none.
    before_reset: int = -1


async def list_group_offsets(
    driver: RequestDriver, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, GroupOffset]:
    return (await list_offsets_of_groups(driver, [group], partitions))[group]


async def list_offsets_of_groups(
    driver: RequestDriver, groups: Iterable[str], partitions: Iterable[TopicPartition] | None = None
) -> dict[str, dict[TopicPartition, GroupOffset]]:
    topics = (
        None
        if partitions is None
        else [
            OffsetFetchRequestTopics(name=name, partition_indexes=[one.partition for one in those])
            for name, those in by_topic(partitions).items()
        ]
    )

    async def send(
        node: Node | None, names: Sequence[str]
    ) -> dict[str, dict[TopicPartition, GroupOffset] | ClientError]:
        response = await driver.send(
            node,
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=one, topics=topics) for one in names]
            ),
            OffsetFetchResponse,
            at_least=_FETCH_VERSIONS[0],
            at_most=_FETCH_VERSIONS[1],
        )
        return {one.group_id: _offsets(one) for one in response.groups}

    return await driver.results_of(groups, driver.find_group_coordinators, send)


async def alter_group_offsets(
    driver: RequestDriver, group: str, offsets: Mapping[TopicPartition, int | GroupOffset]
) -> None:
    moves = {
        place: one if isinstance(one, GroupOffset) else GroupOffset(one)
        for place, one in offsets.items()
    }
    await commit_offsets(driver, group, commit_topics(moves), ResetAction.NONE)


async def delete_group_offsets(
    driver: RequestDriver, group: str, partitions: Iterable[TopicPartition]
) -> None:
    places = list(as_iterable(partitions))

    async def send(node: Node | None, groups: Sequence[str]) -> dict[str, None]:
        response = await driver.send(
            node,
            OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=one.partition)
                            for one in those
                        ],
                    )
                    for name, those in by_topic(places).items()
                ],
            ),
            OffsetDeleteResponse,
        )
        raise_for(response.error_code, f"group {group!r}")
        for topic in response.topics:
            for one in topic.partitions:
                raise_for(one.error_code, f"group {group!r}, {topic.name}-{one.partition_index}")
        return {groups[0]: None}

    await driver.results_of([group], driver.find_group_coordinators, send)


async def commit_offsets(
    driver: RequestDriver, group: str, topics: list[OffsetCommitRequestTopic], action: ResetAction
) -> None:
    """Commits for a group without members, or with an action for a group in use."""
    request = OffsetCommitRequest(group_id=group, topics=topics, reset_action=action)
    if action is not ResetAction.NONE:
        request.generation_id_or_member_epoch = RESET_GENERATION

    async def send(node: Node | None, groups: Sequence[str]) -> dict[str, None]:
        response = await driver.send(
            node,
            request,
            OffsetCommitResponse,
            at_least=_COMMIT_VERSIONS[0],
            at_most=_COMMIT_VERSIONS[1],
        )
        for topic in response.topics:
            for one in topic.partitions:
                what = f"offsets of {topic.name} for group {group!r}"
                _check_commit(what, action, one.error_code, response.error_message)
        return {groups[0]: None}

    await driver.results_of([group], driver.find_group_coordinators, send)


def _offsets(told: OffsetFetchResponseGroup) -> dict[TopicPartition, GroupOffset] | ClientError:
    if told.error_code:
        return broker_error(told.error_code, f"group {told.group_id!r}")
    found = {}
    for topic in told.topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition_index)
            if one.error_code:
                return broker_error(one.error_code, f"group {told.group_id!r}, {place}")
            if one.committed_offset >= 0 or one.reset_timestamp >= 0:
                found[place] = GroupOffset(
                    one.committed_offset,
                    one.metadata or "",
                    one.committed_leader_epoch,
                    one.reset_timestamp,
                    one.offset_before_reset,
                )
    return found


def commit_topics(
    offsets: Mapping[TopicPartition, GroupOffset],
) -> list[OffsetCommitRequestTopic]:
    return [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=one.partition,
                    committed_offset=offsets[one].offset,
                    committed_leader_epoch=offsets[one].leader_epoch,
                    committed_metadata=offsets[one].metadata,
                )
                for one in those
            ],
        )
        for name, those in by_topic(offsets).items()
    ]


def _check_commit(what: str, action: ResetAction, code: int, message: str) -> None:
    if action is not ResetAction.NONE and code in _NOT_UNDERSTOOD and not message:
        raise UnsupportedByBroker(
            "this server does not reset groups in use (it is no Lograft, or an older one); stop the"
            " group's consumers and use alter_group_offsets, or kafka-consumer-groups"
        )
    if code == ErrorCode.UNKNOWN_MEMBER_ID and action is ResetAction.NONE:
        message = "it has members, whose commits would win: stop them first"
    error: ClientError | None = failure(code, what, message or ERROR_REASONS.get(code))
    if error is not None:
        raise error
