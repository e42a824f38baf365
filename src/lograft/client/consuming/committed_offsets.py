"""Reads and writes the committed offsets of a group."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from lograft.client.consuming.group_metrics import GroupMetrics
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.coordinators import ERROR_REASONS, Coordinator
from lograft.client.core import ClientCore
from lograft.client.errors import BrokerError, RebalanceInProgress, TimedOut, broker_error
from lograft.client.group_types import find_other_types, other_type_error
from lograft.client.retries import retry
from lograft.client.types import OffsetAndMetadata, TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID
from lograft.wire.messages import offset_commit as committing
from lograft.wire.messages import offset_fetch as fetching

#: First version that identifies topics by id instead of name.
_IDS_SINCE: Final = 10
#: First version of OffsetFetch for several groups, which also contains the member.
_MANY_GROUPS_SINCE: Final = 8
_STABLE_SINCE: Final = 7
_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
#: Number of attempts after which every broker has the metadata of all existing topics.
_ATTEMPTS_FOR_MISSING: Final = 4


class CommitIdentity(NamedTuple):
    """The member that commits; empty if the consumer is not part of the group's membership."""

    member_id: str = ""
    #: Generation of the classic protocol, member epoch of the KIP-848 protocol.
    epoch: int = -1
    instance_id: str | None = None
    #: The consumer has subscribed, but is not a member now. It must not commit, because its
    #: partitions may belong to other members.
    is_out_of_group: bool = False


class CommittedOffsets:
    def __init__(
        self,
        core: ClientCore[ConsumerSettings],
        coordinator: Coordinator,
        identity: Callable[[], CommitIdentity],
        metrics: GroupMetrics,
    ) -> None:
        self._core = core
        self._coordinator = coordinator
        self._identity = identity
        self._metrics = metrics
        #: Commits are sent in the order of the calls.
        self._commit_lock = asyncio.Lock()
        #: Whether the group is known to have a type that consumers can use.
        self._is_type_checked = False

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int,
        *,
        gives_up_missing: bool = False,
    ) -> None:
        """Commits offsets; retries until the timeout. Raises CommitFailed, RebalanceInProgress,
        NotAuthorized …

        With `gives_up_missing`, a topic that is still missing after a few attempts counts as
        deleted: the commit fails early, but the offsets of the other topics are committed. This is
        for commits that delay something else, or that a later commit repeats."""
        if not offsets:
            return
        attempts = 0
        # Looked up once: a topic that is recreated under the same name has none of these offsets.
        ids = {topic: self._id_of(topic) for topic, _partition in offsets}

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                await self._commit_once(offsets, ids)
            except BrokerError as error:
                if (
                    gives_up_missing
                    and attempts >= _ATTEMPTS_FOR_MISSING
                    and error.code in _MISSING
                ):
                    error.is_retriable = False
                raise

        what = self._describe("commit")
        deadline_ms = self._core.now_ms() + timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._commit_lock.acquire()
        except TimeoutError:
            raise TimedOut(
                f"{what} timed out after {timeout_ms} ms; the commit before it is still being sent"
            ) from None
        try:
            left_ms = max(0, deadline_ms - self._core.now_ms())
            await retry(self._core, attempt, what=what, timeout_ms=left_ms)
        finally:
            self._commit_lock.release()

    async def fetch(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of the partitions that have one; retries until the
        timeout."""
        requested = set(partitions)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            return await self.fetch_once(requested)

        what = self._describe("fetching committed offsets")
        return await retry(self._core, attempt, what=what, timeout_ms=timeout_ms)

    async def check_access(self, partitions: set[TopicPartition]) -> None:
        """Raises ClientError if another group reads one of the topics point to point
        (subscription.mode=ptp). Apache Kafka has no such rule, so it gets no request."""
        if (await self._core.network.connect_any()).is_lograft:
            await self.fetch_once(partitions)

    async def _check_type(self) -> None:
        """Raises ClientError if consumers cannot use the group. As in Kafka, OffsetFetch succeeds
        for groups of every type, but Lograft rejects the commit that follows. Apache Kafka accepts
        it, so the type is not checked there."""
        if self._is_type_checked:
            return
        coordinator = self._coordinator
        if (await coordinator.connect()).is_lograft:
            other = (await find_other_types(coordinator.request)).get(coordinator.key)
            if other is not None:
                raise other_type_error(coordinator.key, other.group_type)
        self._is_type_checked = True

    async def wait_for_access(self, partition: TopicPartition, timeout_ms: int) -> None:
        """Like `check_access`, but retries until the timeout. The error for an offset that is
        pending in an open transaction also proves that the group has access."""

        async def attempt() -> None:
            try:
                await self.check_access({partition})
            except BrokerError as error:
                if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise

        what = self._describe(f"access to topic {partition.topic!r}")
        await retry(self._core, attempt, what=what, timeout_ms=timeout_ms)

    def _describe(self, action: str) -> str:
        return f"{action} of group {self._coordinator.key!r}"

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: Mapping[str, UUID]
    ) -> None:
        topics: dict[str, committing.OffsetCommitRequestTopic] = {}
        for (name, partition), committed in offsets.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = committing.OffsetCommitRequestTopic(
                    name=name, topic_id=ids[name]
                )
            topic.partitions.append(
                committing.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        identity = self._identity()
        if identity.is_out_of_group:
            raise broker_error(
                ErrorCode.UNKNOWN_MEMBER_ID,
                self._describe("commit"),
                "this consumer is not a member: it exceeded max.poll.interval.ms, was fenced or has"
                " not joined yet",
            )
        request = committing.OffsetCommitRequest(
            group_id=self._coordinator.key,
            generation_id_or_member_epoch=identity.epoch,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=list(topics.values()),
        )
        with self._metrics.measure(self._metrics.commits_ms):
            response = await self._coordinator.request(
                request,
                committing.OffsetCommitResponse,
                at_most=_IDS_SINCE - 1 if ZERO_UUID in ids.values() else None,
            )
        self._raise_error(response, {topic_id: name for name, topic_id in ids.items()})

    def _raise_error(
        self, response: committing.OffsetCommitResponse, names: Mapping[UUID, str]
    ) -> None:
        """Raises the first error that is not retriable, otherwise the first error."""
        errors = [
            self._commit_error(
                partition.error_code,
                topic.name or names.get(topic.topic_id, str(topic.topic_id)),
                response,
            )
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code
        ]
        if errors:
            worst = next((error for error in errors if not error.is_retriable), errors[0])
            self._coordinator.forget_if_moved(worst.code)
            raise worst

    def _commit_error(
        self, code: int, topic: str, response: committing.OffsetCommitResponse
    ) -> BrokerError:
        what = f"committing offsets of topic {topic!r} for group {self._coordinator.key!r}"
        error = broker_error(code, what, response.error_message or ERROR_REASONS.get(code))
        if isinstance(error, RebalanceInProgress):
            # The rebalance completes in the next poll, so a retry here cannot succeed.
            error.is_retriable = False
        elif code == ErrorCode.STALE_MEMBER_EPOCH and self._identity().epoch > 0:
            # The epoch changed while the commit was in flight; this is still a member.
            error.is_retriable = True
        return error

    async def fetch_once(
        self, partitions: set[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Raises ClientError if the group is of a type that consumers cannot use; members have
        already checked that by joining."""
        if not partitions:
            return {}
        if self._identity() == CommitIdentity():
            await self._check_type()
        by_topic: dict[str, list[int]] = {}
        for name, partition in sorted(partitions):
            by_topic.setdefault(name, []).append(partition)
        ids = {self._id_of(name): name for name in by_topic}
        response = await self._coordinator.request(
            lambda version: self._build_fetch_request(by_topic, version),
            fetching.OffsetFetchResponse,
            at_most=_IDS_SINCE - 1 if ZERO_UUID in ids else None,
        )
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._check(response.error_code)
        for old_topic in response.topics:
            for old in old_topic.partitions:
                self._check(old.error_code, old_topic.name)
                if old.committed_offset >= 0:
                    offsets[TopicPartition(old_topic.name, old.partition_index)] = (
                        OffsetAndMetadata(
                            old.committed_offset, old.metadata or "", old.committed_leader_epoch
                        )
                    )
        for group in response.groups:
            self._check(group.error_code)
            for topic in group.topics:
                name = topic.name or ids.get(topic.topic_id, "")
                for entry in topic.partitions:
                    self._check(entry.error_code, name)
                    if entry.committed_offset >= 0:
                        offsets[TopicPartition(name, entry.partition_index)] = OffsetAndMetadata(
                            entry.committed_offset,
                            entry.metadata or "",
                            entry.committed_leader_epoch,
                        )
        return offsets

    def _build_fetch_request(
        self, by_topic: Mapping[str, list[int]], version: int
    ) -> fetching.OffsetFetchRequest:
        group_id = self._coordinator.key
        if version < _MANY_GROUPS_SINCE:
            return fetching.OffsetFetchRequest(
                group_id=group_id,
                topics=[
                    fetching.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                    for name, indexes in by_topic.items()
                ],
                require_stable=version >= _STABLE_SINCE,
            )
        identity = self._identity()
        # Brokers check only members of the KIP-848 protocol; others omit the member, as in Java.
        is_member = self._core.settings.uses_consumer_protocol and identity.epoch >= 0
        return fetching.OffsetFetchRequest(
            groups=[
                fetching.OffsetFetchRequestGroup(
                    group_id=group_id,
                    member_id=identity.member_id if is_member else None,
                    member_epoch=identity.epoch if is_member else -1,
                    topics=[
                        fetching.OffsetFetchRequestTopics(
                            name=name, topic_id=self._id_of(name), partition_indexes=indexes
                        )
                        for name, indexes in by_topic.items()
                    ],
                )
            ],
            require_stable=True,
        )

    def _check(self, code: int, topic: str = "") -> None:
        if not code:
            return
        self._coordinator.forget_if_moved(code)
        what = f"committed offsets of group {self._coordinator.key!r}"
        what = f"{what} for topic {topic!r}" if topic else what
        error = broker_error(code, what, ERROR_REASONS.get(code))
        if code == ErrorCode.STALE_MEMBER_EPOCH and self._identity().epoch > 0:
            error.is_retriable = True
        raise error

    def _id_of(self, topic: str) -> UUID:
        metadata = self._core.metadata.cache.topic(topic)
        return ZERO_UUID if metadata is None else metadata.id
