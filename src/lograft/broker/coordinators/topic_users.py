"""Finds the groups that read topics, by sending ListGroups to all group coordinators."""

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
#: How long a request waits for a response. Clients retry.
TIMEOUT_MS: Final = 5_000
LANE: Final = "claims"


class TopicUsers:
    def __init__(self, metadata: ClusterMetadata, brokers: BrokerLink) -> None:
        self._metadata = metadata
        self._brokers = brokers

    async def find(self, topics: Sequence[str]) -> dict[str, set[str]]:
        """Returns for each topic the groups of the cluster that use it. Raises
        CoordinatorNotAvailable if a coordinator does not respond."""
        users: dict[str, set[str]] = {topic: set() for topic in topics}
        leaders = leaders_of_groups(self._metadata.image) if topics else {}
        missing = set(leaders)
        for leader in sorted(set(leaders.values())):
            response = await self.ask(leader, topics, ())
            missing.difference_update(response.partitions)
            for group in response.groups:
                for topic in group.used_topics:
                    users[topic].add(group.group_id)
        if missing:
            raise CoordinatorNotAvailable(
                f"the coordinator of {OFFSETS_TOPIC}-{min(missing)} did not report which groups"
                f" read {', '.join(topics)}: try again"
            )
        return users

    async def ask(
        self, leader: NodeId | int, topics: Sequence[str], group_ids: Sequence[str]
    ) -> ListGroupsResponse:
        """Lists the groups of a coordinator that use the topics; all of them, or only those with
        the given ids."""
        request = ListGroupsRequest(used_topics=list(topics), group_ids=list(group_ids))
        try:
            response = await self._brokers.request(
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
        if response.error_code:
            raise CoordinatorNotAvailable(
                f"broker {leader} did not report which groups read {', '.join(topics)}:"
                f" {ErrorCode(response.error_code).name}"
            )
        return response


def leaders_of_groups(image: MetadataImage) -> dict[int, int]:
    """Returns the leader of each partition of __consumer_offsets, which are the coordinators."""
    topic = image.topic(OFFSETS_TOPIC)
    return {} if topic is None else {i: state.leader for i, state in topic.partitions.items()}
