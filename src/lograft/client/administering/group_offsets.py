"""Requests about the committed offsets of groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lograft.client.administering.partitions import (
    error_if_failed,
    group_by_topic,
    group_indexes_by_topic,
)
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.coordinators import ERROR_REASONS
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

#: Errors of a broker that ignores the reset action and sees a commit without a member.
_RESET_UNSUPPORTED: Final = frozenset(
    (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION)
)
#: Versions that identify topics by name; later ones use topic ids.
_COMMIT_VERSIONS: Final = (8, 9)
_FETCH_VERSIONS: Final = (8, 9)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    #: When it was last reset, if the reset can be undone; otherwise -1.
    reset_ms: int = -1
    #: The offset before the reset, which an undo restores; -1: there was none.
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
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in group_indexes_by_topic(partitions).items()
        ]
    )

    async def send(
        node: Node | None, names: Sequence[str]
    ) -> dict[str, dict[TopicPartition, GroupOffset] | ClientError]:
        response = await driver.send(
            node,
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names]
            ),
            OffsetFetchResponse,
            at_least=_FETCH_VERSIONS[0],
            at_most=_FETCH_VERSIONS[1],
        )
        return {result.group_id: _offsets_of(result) for result in response.groups}

    return await driver.results_of(groups, driver.find_group_coordinators, send)


async def alter_group_offsets(
    driver: RequestDriver, group: str, offsets: Mapping[TopicPartition, int | GroupOffset]
) -> None:
    commits = {
        partition: offset if isinstance(offset, GroupOffset) else GroupOffset(offset)
        for partition, offset in offsets.items()
    }
    await commit_offsets(driver, group, build_commit_topics(commits), ResetAction.NONE)


async def delete_group_offsets(
    driver: RequestDriver, group: str, partitions: Iterable[TopicPartition]
) -> None:
    deleted = list(as_iterable(partitions))

    async def send(node: Node | None, groups: Sequence[str]) -> dict[str, None]:
        response = await driver.send(
            node,
            OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                        ],
                    )
                    for name, indexes in group_indexes_by_topic(deleted).items()
                ],
            ),
            OffsetDeleteResponse,
        )
        raise_for(response.error_code, f"group {group!r}")
        for topic in response.topics:
            for result in topic.partitions:
                raise_for(
                    result.error_code, f"group {group!r}, {topic.name}-{result.partition_index}"
                )
        return {groups[0]: None}

    await driver.results_of([group], driver.find_group_coordinators, send)


async def commit_offsets(
    driver: RequestDriver, group: str, topics: list[OffsetCommitRequestTopic], action: ResetAction
) -> None:
    """Commits offsets of a group without members, or with `action` of any group."""
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
            for result in topic.partitions:
                what = f"offsets of {topic.name} for group {group!r}"
                _check_commit(what, action, result.error_code, response.error_message)
        return {groups[0]: None}

    await driver.results_of([group], driver.find_group_coordinators, send)


def _offsets_of(group: OffsetFetchResponseGroup) -> dict[TopicPartition, GroupOffset] | ClientError:
    if group.error_code:
        return broker_error(group.error_code, f"group {group.group_id!r}")
    offsets = {}
    for topic in group.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                return broker_error(entry.error_code, f"group {group.group_id!r}, {partition}")
            if entry.committed_offset >= 0 or entry.reset_timestamp >= 0:
                offsets[partition] = GroupOffset(
                    entry.committed_offset,
                    entry.metadata or "",
                    entry.committed_leader_epoch,
                    entry.reset_timestamp,
                    entry.offset_before_reset,
                )
    return offsets


def build_commit_topics(
    offsets: Mapping[TopicPartition, GroupOffset],
) -> list[OffsetCommitRequestTopic]:
    return [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offsets[partition].offset,
                    committed_leader_epoch=offsets[partition].leader_epoch,
                    committed_metadata=offsets[partition].metadata,
                )
                for partition in partitions
            ],
        )
        for name, partitions in group_by_topic(offsets).items()
    ]


def _check_commit(what: str, action: ResetAction, code: int, message: str) -> None:
    if action is not ResetAction.NONE and code in _RESET_UNSUPPORTED and not message:
        raise UnsupportedByBroker(
            "this broker cannot reset a group that has members (it is not Lograft, or an older"
            " version); stop the group's consumers and use alter_group_offsets, or"
            " kafka-consumer-groups"
        )
    if code == ErrorCode.UNKNOWN_MEMBER_ID and action is ResetAction.NONE:
        message = "the group has members, whose commits would overwrite it: stop them first"
    error: ClientError | None = error_if_failed(code, what, message or ERROR_REASONS.get(code))
    if error is not None:
        raise error
