"""What a group has committed, read and written."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.coordinators import Coordinator
from lograft.client.core import ClientCore
from lograft.client.errors import BrokerError, RebalanceInProgress, broker_error
from lograft.client.group_types import find_other_types, other_type_error
from lograft.client.retries import retry
from lograft.client.types import OffsetAndMetadata, TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID
from lograft.wire.messages import offset_commit as committing
from lograft.wire.messages import offset_fetch as fetching

#: From which on topics have ids instead of names.
_IDS_SINCE: Final = 10
#: Of OffsetFetch, from which on it is asked for many groups at once, and of one member of one.
_MANY_GROUPS_SINCE: Final = 8
_STABLE_SINCE: Final = 7
_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
#: After that many a broker has heard of every topic that there is.
_ATTEMPTS_FOR_MISSING: Final = 4
#: What a code means here; the responses have no room for a sentence.
REASONS: Final[Mapping[int, str]] = {
    ErrorCode.POLICY_VIOLATION: "another group reads it point to point (subscription.mode=ptp)",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group no longer exists, or it is not a consumer group"
    " (`lograft groups list` shows its type)",
}


class Identity(NamedTuple):
    """Who commits: a member of the group, or somebody from outside while it has no members."""

    member_id: str = ""
    #: Generation of the classic protocol, member epoch of KIP-848's.
    epoch: int = -1
    instance_id: str | None = None
    #: A member that is not in the group now: what it has read may be others' since.
    is_out: bool = False


class CommittedOffsets:
    def __init__(
        self,
        core: ClientCore[ConsumerSettings],
        coordinator: Coordinator,
        identity: Callable[[], Identity],
    ) -> None:
        self._core = core
        self._coordinator = coordinator
        self._identity = identity
        #: Commits are made in the order in which they were asked for.
        self._turn = asyncio.Lock()
        #: Whether the group is known to be one that consumers can use.
        self._is_type_checked = False

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        budget_ms: int,
        *,
        gives_up_missing: bool = False,
    ) -> None:
        """Tries for so long. Raises CommitFailed, RebalanceInProgress, NotAuthorized …

        `gives_up_missing`: others wait for it, or the next one comes anyway, so a topic that is
        still missing after a few attempts has been deleted; what there was to commit of the others
        is committed."""
        if not offsets:
            return
        attempts = 0
        # A topic that is made anew under its name meanwhile has none of these offsets.
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

        async with self._turn:
            await retry(self._core, attempt, what=self._what("commit"), timeout_ms=budget_ms)

    async def committed(
        self, partitions: Iterable[TopicPartition], budget_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of those that have something committed; tries for so long."""
        wanted = set(partitions)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            return await self.committed_once(wanted)

        what = self._what("reading committed offsets")
        return await retry(self._core, attempt, what=what, timeout_ms=budget_ms)

    async def check_access(self, partitions: set[TopicPartition]) -> None:
        """Raises ClientError if another group reads a topic point to point (subscription.mode=ptp).
        Apache Kafka has no such rule and is not asked."""
        if (await self._core.network.connect_any()).is_lograft:
            await self.committed_once(partitions)

    async def _check_type(self) -> None:
        """OffsetFetch answers for groups of every type, as in Kafka, but Lograft rejects the commit
        that follows. Apache Kafka serves all types and is not asked."""
        if self._is_type_checked:
            return
        coordinator = self._coordinator
        if (await coordinator.connect()).is_lograft:
            other = (await find_other_types(coordinator.request)).get(coordinator.key)
            if other is not None:
                raise other_type_error(coordinator.key, other.group_type)
        self._is_type_checked = True

    async def await_access(self, partition: TopicPartition, budget_ms: int) -> None:
        """As `check_access`, tries for so long. An offset that an open transaction will commit
        shows that the group has access; its value does not matter here."""

        async def attempt() -> None:
            try:
                await self.check_access({partition})
            except BrokerError as error:
                if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise

        what = self._what(f"access to topic {partition.topic!r}")
        await retry(self._core, attempt, what=what, timeout_ms=budget_ms)

    def _what(self, act: str) -> str:
        return f"{act} of group {self._coordinator.key!r}"

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: Mapping[str, UUID]
    ) -> None:
        topics: dict[str, committing.OffsetCommitRequestTopic] = {}
        for (name, partition), place in offsets.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = committing.OffsetCommitRequestTopic(
                    name=name, topic_id=ids[name]
                )
            topic.partitions.append(
                committing.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=place.offset,
                    committed_leader_epoch=place.leader_epoch,
                    committed_metadata=place.metadata,
                )
            )
        who = self._identity()
        if who.is_out:
            raise broker_error(
                ErrorCode.UNKNOWN_MEMBER_ID,
                self._what("commit"),
                "this consumer is not a member now: it was too slow or has not joined yet",
            )
        answer = await self._coordinator.request(
            committing.OffsetCommitRequest(
                group_id=self._coordinator.key,
                generation_id_or_member_epoch=who.epoch,
                member_id=who.member_id,
                group_instance_id=who.instance_id,
                topics=list(topics.values()),
            ),
            committing.OffsetCommitResponse,
            at_most=_IDS_SINCE - 1 if ZERO_UUID in ids.values() else None,
        )
        self._raise_worst(answer, {topic_id: name for name, topic_id in ids.items()})

    def _raise_worst(
        self, answer: committing.OffsetCommitResponse, names: Mapping[UUID, str]
    ) -> None:
        """Of the partitions' errors the first that does not pass, else the first."""
        errors = [
            self._commit_error(
                one.error_code, topic.name or names.get(topic.topic_id, str(topic.topic_id)), answer
            )
            for topic in answer.topics
            for one in topic.partitions
            if one.error_code
        ]
        if errors:
            worst = next((error for error in errors if not error.is_retriable), errors[0])
            self._coordinator.forget_if_moved(worst.code)
            raise worst

    def _commit_error(
        self, code: int, topic: str, answer: committing.OffsetCommitResponse
    ) -> BrokerError:
        what = f"offsets of {topic} are not committed for group {self._coordinator.key!r}"
        error = broker_error(code, what, answer.error_message or REASONS.get(code))
        if isinstance(error, RebalanceInProgress):
            # It passes when the program polls; trying again here would wait in vain.
            error.is_retriable = False
        elif code == ErrorCode.STALE_MEMBER_EPOCH and self._identity().epoch > 0:
            # The epoch has gone on while the commit was under way; the member is still in.
            error.is_retriable = True
        return error

    async def committed_once(
        self, partitions: set[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Raises ClientError if the group is of a type that consumers cannot use. Members of a
        group learn this when they join it."""
        if not partitions:
            return {}
        if self._identity() == Identity():
            await self._check_type()
        by_topic: dict[str, list[int]] = {}
        for name, partition in sorted(partitions):
            by_topic.setdefault(name, []).append(partition)
        ids = {self._id_of(name): name for name in by_topic}
        answer = await self._coordinator.request(
            lambda version: self._question(by_topic, version),
            fetching.OffsetFetchResponse,
            at_most=_IDS_SINCE - 1 if ZERO_UUID in ids else None,
        )
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        self._check(answer.error_code)
        for told in answer.topics:
            for old in told.partitions:
                self._check(old.error_code, told.name)
                if old.committed_offset >= 0:
                    found[TopicPartition(told.name, old.partition_index)] = OffsetAndMetadata(
                        old.committed_offset, old.metadata or "", old.committed_leader_epoch
                    )
        for group in answer.groups:
            self._check(group.error_code)
            for topic in group.topics:
                name = topic.name or ids.get(topic.topic_id, "")
                for one in topic.partitions:
                    self._check(one.error_code, name)
                    if one.committed_offset >= 0:
                        found[TopicPartition(name, one.partition_index)] = OffsetAndMetadata(
                            one.committed_offset, one.metadata or "", one.committed_leader_epoch
                        )
        return found

    def _question(
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
        who = self._identity()
        # Only members of the new protocol are checked; the others leave it out, as in Java.
        is_member = self._core.settings.uses_consumer_protocol and who.epoch >= 0
        return fetching.OffsetFetchRequest(
            groups=[
                fetching.OffsetFetchRequestGroup(
                    group_id=group_id,
                    member_id=who.member_id if is_member else None,
                    member_epoch=who.epoch if is_member else -1,
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
        error = broker_error(code, what, REASONS.get(code))
        if code == ErrorCode.STALE_MEMBER_EPOCH and self._identity().epoch > 0:
            error.is_retriable = True
        raise error

    def _id_of(self, topic: str) -> UUID:
        known = self._core.metadata.cache.topic(topic)
        return ZERO_UUID if known is None else known.id
