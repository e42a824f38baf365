"""Topics that one group may read (`subscription.mode=ptp`): a coordinator asks before it lets a
group subscribe to them or commit.

    await broker.claims.claim(group_id, topics)

For topics that any group may read, and for those that the group has, that costs a look at the
image. Otherwise the controller is asked for the topic. If another group has it, that group's
coordinator is asked first whether it still uses it.
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
from lograft.metadata.topic_claims import claim_rejection, claim_request, unclaimed
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Clock
from lograft.model.types import NO_NODE
from lograft.wire.apis import Versions
from lograft.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

LOGGER: Final = logging.getLogger(__name__)

CLAIM_VERSIONS: Final = Versions(1, 1)
LIST_VERSIONS: Final = Versions(5, 5)
#: Clients ask again by themselves: none waits longer for one answer.
TIMEOUT_MS: Final = 5_000
LANE: Final = "claims"
#: A claim that others change as fast as it is asked for is left to the client's next try.
ATTEMPTS_PER_TOPIC: Final = 3
#: At most one line in this time says who is refused a topic.
LOG_INTERVAL_MS: Final = 60_000

ASKED: Final = Counter(
    "lograft_topic_claim_requests_total",
    "Requests to the coordinator that decides which group may subscribe to a topic.",
)
REJECTED: Final = Counter(
    "lograft_topic_claims_rejected_total", "Subscriptions that such a coordinator rejected."
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
        #: (group, topic): claims under way, with how many wait for each.
        self._claiming: collections.Counter[tuple[str, str]] = collections.Counter()
        #: By topic that is claimed: when a refusal was last logged.
        self._logged_ms: dict[str, int] = {}
        self._asked = 0
        self._refused = 0

    async def claim(self, group_id: str, topics: Collection[str]) -> None:
        """Returns when the group may read all of these; nothing has been awaited since that was so.
        Raises Rejected: another group has one of them. CoordinatorNotAvailable: ask again."""
        if not unclaimed(self._metadata.image, group_id, topics):
            return
        keys = [(group_id, topic) for topic in topics]
        self._claiming.update(keys)
        try:
            await self._claim_all(group_id, topics)
        finally:
            self._claiming.subtract(keys)
            self._claiming += collections.Counter()  # without those that nobody waits for

    async def find_refused(self, group_id: str, topics: Collection[str]) -> dict[str, Rejected]:
        """Returns the topics that another group uses, with the reason. Claims nothing: a group that
        only asks for its offsets may never read. Raises CoordinatorNotAvailable: ask again."""
        refused: dict[str, Rejected] = {}
        for topic in unclaimed(self._metadata.image, group_id, topics):
            holder = self._metadata.image.claims.get(topic)
            if holder and await self._uses(holder, topic):
                refused[topic] = claim_rejection(topic, holder=holder, group_id=group_id)
                self._say(topic, refused[topic])
        return refused

    def claiming(self, topics: Collection[str]) -> list[tuple[str, str]]:
        """(group, topic): whoever has just got a topic, and is about to become a member, uses it.
        Without this the next one could take it in the moment between."""
        return [key for key in self._claiming if key[1] in topics]

    async def _claim_all(self, group_id: str, topics: Collection[str]) -> None:
        for _ in range(ATTEMPTS_PER_TOPIC * len(topics) + 1):
            missing = unclaimed(self._metadata.image, group_id, topics)
            if not missing:
                return
            try:
                await self._claim(group_id, missing[0])
            except Rejected as error:
                self._say(missing[0], error)
                raise
            except (ControllerUnreachable, PeerUnreachable, PeerLost) as error:
                raise CoordinatorNotAvailable(f"{missing[0]} is not claimed yet: {error}") from None
        raise CoordinatorNotAvailable(f"other groups are claiming {missing[0]} too")

    async def _claim(self, group_id: str, topic: str) -> None:
        holder = self._metadata.image.claims[topic]
        if holder and await self._uses(holder, topic):
            raise claim_rejection(topic, holder=holder, group_id=group_id)
        self._asked += 1
        reply = await self._link.request(
            claim_request(group_id, topic, held_before=holder),
            CLAIM_VERSIONS,
            IncrementalAlterConfigsResponse,
            timeout_ms=TIMEOUT_MS,
            lane=LANE,
            lograft_only=True,
        )
        (answer,) = reply.responses
        if answer.error_code:
            raise Rejected(ErrorCode(answer.error_code), answer.error_message or "no reason given")
        await self._metadata.wait_image(
            lambda image: image.claims.get(topic, group_id) != holder, timeout_ms=TIMEOUT_MS
        )

    async def _uses(self, group_id: str, topic: str) -> bool:
        """Whether the group has members that subscribe to the topic, or positions in it."""
        index = self._groups.partition_of(group_id)
        leader = leaders_of_groups(self._metadata.image).get(index, NO_NODE)
        answer = await self._users.ask(leader, [topic], [group_id])
        if index not in answer.partitions:
            raise CoordinatorNotAvailable(f"broker {leader} does not coordinate {group_id}")
        return bool(answer.groups)

    def _say(self, topic: str, error: Rejected) -> None:
        self._refused += 1
        now_ms = self._clock.mono_ms()
        if now_ms - self._logged_ms.get(topic, -LOG_INTERVAL_MS) >= LOG_INTERVAL_MS:
            claims = self._metadata.image.claims
            self._logged_ms = {
                one: at_ms for one, at_ms in self._logged_ms.items() if one in claims
            }
            self._logged_ms[topic] = now_ms
            LOGGER.warning("%s", error)

    def collect_samples(self) -> Iterator[Sample]:
        yield ASKED.sample(self._asked)
        yield REJECTED.sample(self._refused)
