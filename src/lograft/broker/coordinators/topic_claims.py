"""Claims of topics that only one group may read (`subscription.mode=ptp`). A coordinator claims a
topic for a group before the group subscribes to it or commits offsets.

    await broker.claims.claim(group_id, topics)

This only reads the image if any group may read the topics, or if the group has claimed them.
Otherwise it requests the claim from the controller. If another group has claimed the topic, the
coordinator of that group first checks whether the group still uses it.
"""

import collections
import logging
from collections.abc import Collection, Iterator
from typing import Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.coordinators.coordinator_runtime import CoordinatorRuntime
from lograft.broker.coordinators.topic_users import TopicUsers, leaders_of_groups
from lograft.broker.errors import ControllerUnreachable, PeerLost, PeerUnreachable
from lograft.broker.links.controller_link import ControllerLink
from lograft.coordination.errors import CoordinatorNotAvailable
from lograft.coordination.group_shard import GroupShard
from lograft.metadata.topic_claims import claim_rejection, claim_request, find_unclaimed
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Clock
from lograft.model.types import NO_NODE
from lograft.wire.apis import Versions
from lograft.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

LOGGER: Final = logging.getLogger(__name__)

CLAIM_VERSIONS: Final = Versions(1, 1)
LIST_VERSIONS: Final = Versions(5, 5)
#: How long a request waits for a response. Clients retry.
TIMEOUT_MS: Final = 5_000
LANE: Final = "claims"
#: If other groups change a claim after each check, the client has to retry.
ATTEMPTS_PER_TOPIC: Final = 3
#: Minimum interval between two log lines about rejected claims of a topic.
LOG_INTERVAL_MS: Final = 60_000

REQUESTS: Final = Counter(
    "lograft_topic_claim_requests_total",
    "Requests to the topic claim coordinator, which decides which group may subscribe to a topic.",
)
REJECTIONS: Final = Counter(
    "lograft_topic_claims_rejected_total",
    "Subscriptions rejected by the topic claim coordinator.",
)


class TopicClaims:
    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        link: ControllerLink,
        users: TopicUsers,
        groups: CoordinatorRuntime[GroupShard],
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._link = link
        self._users = users
        self._groups = groups
        self._clock = clock
        #: Claims in progress of (group, topic), with the number of callers that wait for them.
        self._pending_claims: collections.Counter[tuple[str, str]] = collections.Counter()
        #: By topic, the time of the last log line about a rejected claim.
        self._logged_ms: dict[str, int] = {}
        self._requests = 0
        self._rejections = 0

    async def claim(self, group_id: str, topics: Collection[str]) -> None:
        """Returns when the group has claimed all topics, without an await in between. Raises
        Rejected if another group uses one of them, or CoordinatorNotAvailable: then retry."""
        if not find_unclaimed(self._metadata.image, group_id, topics):
            return
        keys = [(group_id, topic) for topic in topics]
        self._pending_claims.update(keys)
        try:
            await self._claim_all(group_id, topics)
        finally:
            self._pending_claims.subtract(keys)
            self._pending_claims += collections.Counter()  # removes those without callers

    async def find_refused(self, group_id: str, topics: Collection[str]) -> dict[str, Rejected]:
        """Returns the topics that another group uses, with the reason. Claims nothing, because a
        group that only fetches its offsets may never read. Raises CoordinatorNotAvailable: then
        retry."""
        refused: dict[str, Rejected] = {}
        for topic in find_unclaimed(self._metadata.image, group_id, topics):
            holder = self._metadata.image.claims.get(topic)
            if holder and await self._uses(holder, topic):
                refused[topic] = claim_rejection(topic, holder=holder, group_id=group_id)
                self._log_rejection(topic, refused[topic])
        return refused

    def find_pending(self, topics: Collection[str]) -> list[tuple[str, str]]:
        """Returns the claims in progress as (group, topic). They count as used: otherwise another
        group could claim a topic before the first member of the group has joined."""
        return [key for key in self._pending_claims if key[1] in topics]

    async def _claim_all(self, group_id: str, topics: Collection[str]) -> None:
        for _ in range(ATTEMPTS_PER_TOPIC * len(topics) + 1):
            missing = find_unclaimed(self._metadata.image, group_id, topics)
            if not missing:
                return
            try:
                await self._claim(group_id, missing[0])
            except Rejected as error:
                self._log_rejection(missing[0], error)
                raise
            except (ControllerUnreachable, PeerUnreachable, PeerLost) as error:
                raise CoordinatorNotAvailable(f"{missing[0]} is not claimed yet: {error}") from None
        raise CoordinatorNotAvailable(f"other groups are claiming {missing[0]} too")

    async def _claim(self, group_id: str, topic: str) -> None:
        holder = self._metadata.image.claims[topic]
        if holder and await self._uses(holder, topic):
            raise claim_rejection(topic, holder=holder, group_id=group_id)
        self._requests += 1
        reply = await self._link.request(
            claim_request(group_id, topic, held_before=holder),
            CLAIM_VERSIONS,
            IncrementalAlterConfigsResponse,
            timeout_ms=TIMEOUT_MS,
            lane=LANE,
            lograft_only=True,
        )
        (result,) = reply.responses
        if result.error_code:
            raise Rejected(ErrorCode(result.error_code), result.error_message or "no reason given")
        await self._metadata.wait_image(
            lambda image: image.claims.get(topic, group_id) != holder, timeout_ms=TIMEOUT_MS
        )

    async def _uses(self, group_id: str, topic: str) -> bool:
        """Returns whether members of the group subscribe to the topic, or the group has committed
        offsets for it."""
        index = self._groups.partition_of(group_id)
        leader = leaders_of_groups(self._metadata.image).get(index, NO_NODE)
        response = await self._users.ask(leader, [topic], [group_id])
        if index not in response.partitions:
            raise CoordinatorNotAvailable(f"broker {leader} does not coordinate {group_id}")
        return bool(response.groups)

    def _log_rejection(self, topic: str, error: Rejected) -> None:
        self._rejections += 1
        now_ms = self._clock.mono_ms()
        if now_ms - self._logged_ms.get(topic, -LOG_INTERVAL_MS) >= LOG_INTERVAL_MS:
            claims = self._metadata.image.claims
            self._logged_ms = {
                name: logged_ms for name, logged_ms in self._logged_ms.items() if name in claims
            }
            self._logged_ms[topic] = now_ms
            LOGGER.warning("%s", error)

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUESTS.sample(self._requests)
        yield REJECTIONS.sample(self._rejections)
