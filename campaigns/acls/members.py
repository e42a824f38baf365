"""A principal in a group: it heartbeats, commits and fetches offsets, whatever it is permitted.

Denied requests are repeated, so that the watch sees the first response after every change."""

import asyncio
from random import Random
from typing import Final, TypeVar
from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.routing import ClusterClient
from lograft.wire.message import Message
from lograft.wire.messages import consumer_group_heartbeat as beating
from lograft.wire.messages import offset_commit as committing
from lograft.wire.messages import offset_fetch as fetching
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

R = TypeVar("R", bound=Message)

TIMEOUT_MS: Final = 2_000
COORDINATOR_VERSION: Final = 4
BEAT_VERSION: Final = 1
OFFSETS_VERSION: Final = 9
REBALANCE_MS: Final = 2_000
PAUSES: Final = (0.02, 0.1, 0.2)
#: Error codes after which the member joins again.
FENCED: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH))


class GroupMember:
    def __init__(
        self, client: ClusterClient, group: str, topics: list[str], random: Random
    ) -> None:
        self._client = client
        self._group = group
        self._topics = topics
        self._random = random
        self._member_id = str(UUID(bytes=random.randbytes(16), version=4))
        self._epoch = 0
        self._committed = 0
        #: Kept while FindCoordinator is denied.
        self._coordinator: Address | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.choice(PAUSES))
            work = self._random.choice(
                (self._find_coordinator, self._beat, self._beat, self._commit, self._fetch_offsets)
            )
            try:
                await work()
            except (NotSent, OutcomeUnknown):
                self._client.mark_stale()
                self._coordinator = None

    async def _find_coordinator(self) -> None:
        response = await self._client.request(
            FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group]),
            COORDINATOR_VERSION,
            FindCoordinatorResponse,
            timeout_ms=TIMEOUT_MS,
        )
        (found,) = response.coordinators
        if not found.error_code:
            self._coordinator = Address(found.host, found.port)

    async def _beat(self) -> None:
        is_full = self._epoch == 0 or self._random.random() < 0.3
        request = beating.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=self._topics if is_full else None,
            # It owns nothing: what it commits and fetches does not depend on its assignment.
            topic_partitions=[] if is_full else None,
        )
        response = await self._request(
            request, BEAT_VERSION, beating.ConsumerGroupHeartbeatResponse
        )
        if response.error_code in FENCED:
            self._epoch = 0
        elif response.error_code == ErrorCode.NOT_COORDINATOR:
            self._coordinator = None
        elif not response.error_code:
            self._epoch = response.member_epoch

    async def _commit(self) -> None:
        self._committed += 1
        await self._request(
            committing.OffsetCommitRequest(
                group_id=self._group,
                member_id=self._member_id if self._epoch else "",
                generation_id_or_member_epoch=self._epoch or -1,
                topics=[
                    committing.OffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            committing.OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=self._committed
                            )
                        ],
                    )
                    for name in self._topics
                ],
            ),
            OFFSETS_VERSION,
            committing.OffsetCommitResponse,
        )

    async def _fetch_offsets(self) -> None:
        await self._request(
            fetching.OffsetFetchRequest(
                groups=[
                    fetching.OffsetFetchRequestGroup(
                        group_id=self._group,
                        topics=[
                            fetching.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
                            for name in self._topics
                        ],
                    )
                ]
            ),
            OFFSETS_VERSION,
            fetching.OffsetFetchResponse,
        )

    async def _request(self, message: Message, version: int, response_type: type[R]) -> R:
        """Sends it to any node while the coordinator is unknown: permissions are checked first."""
        if self._coordinator is None:
            return await self._client.request(
                message, version, response_type, timeout_ms=TIMEOUT_MS
            )
        return await self._client.request_to(
            self._coordinator, message, version, response_type, timeout_ms=TIMEOUT_MS
        )
