"""Finds the groups that use topics, by asking the coordinators of all groups."""

from collections.abc import Sequence
from typing import Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.broker_link import BrokerLink
from lograft.coordination.errors import CoordinatorNotAvailable
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.types import OFFSETS_TOPIC, NodeId
from lograft.wire.apis import Versions
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

LIST_VERSIONS: Final = Versions(5, 5)
#: Clients ask again by themselves: none waits longer for one answer.
TIMEOUT_MS: Final = 5_000
LANE: Final = "claims"


class TopicUsers:
    def __init__(self, metadata: ClusterMetadata, brokers: BrokerLink) -> None:
        self._metadata = metadata
        self._brokers = brokers

    async def find(self, topics: Sequence[str]) -> dict[str, set[str]]:
        """By topic: the groups of the whole cluster that use it. Raises CoordinatorNotAvailable if
        some of them cannot be asked."""
        users: dict[str, set[str]] = {topic: set() for topic in topics}
        leaders = leaders_of_groups(self._metadata.image) if topics else {}
        unheard = set(leaders)
        for leader in sorted(set(leaders.values())):
            answer = await self.ask(leader, topics, ())
            unheard.difference_update(answer.partitions)
            for group in answer.groups:
                for topic in group.used_topics:
                    users[topic].add(group.group_id)
        if unheard:
            raise CoordinatorNotAvailable(
                f"the coordinator of {OFFSETS_TOPIC}-{min(unheard)} did not report which groups"
                f" read {', '.join(topics)}: try again"
            )
        return users

    async def ask(
        self, leader: NodeId | int, topics: Sequence[str], group_ids: Sequence[str]
    ) -> ListGroupsResponse:
        """What a coordinator knows of its groups, or of some of them."""
        request = ListGroupsRequest(used_topics=list(topics), group_ids=list(group_ids))
        try:
            answer = await self._brokers.request(
                NodeId(leader),
                request,
                LIST_VERSIONS,
                ListGroupsResponse,
                timeout_ms=TIMEOUT_MS,
                lane=LANE,
                lograft_only=True,
            )
        except (PeerUnreachable, PeerLost) as error:
            raise CoordinatorNotAvailable(
                f"could not find the groups that read {', '.join(topics)}: {error}"
            ) from None
        if answer.error_code:
            raise CoordinatorNotAvailable(
                f"broker {leader} did not report which groups read {', '.join(topics)}:"
                f" {ErrorCode(answer.error_code).name}"
            )
        return answer


def leaders_of_groups(image: MetadataImage) -> dict[int, int]:
    """By partition of the groups' topic; without it there are no groups."""
    topic = image.topic(OFFSETS_TOPIC)
    return {} if topic is None else {i: state.leader for i, state in topic.partitions.items()}
