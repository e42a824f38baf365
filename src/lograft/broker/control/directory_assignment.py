"""Reports the log dir of each replica to the controller, for brokers with several log dirs.

The broker selects the log dir. The controller must know it to move the leadership of the right
partitions when one of the disks fails.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.links.controller_link import ControllerLink
from lograft.model.types import NodeId, TopicIdPartition
from lograft.wire.apis import Versions
from lograft.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

LOGGER: Final = logging.getLogger(__name__)

VERSIONS: Final = Versions(0, 0)
RETRY_MS: Final = 500
#: Maximum number of replicas in one request.
REPLICAS_MAX: Final = 2_000


class DirectoryAssigner:
    def __init__(
        self,
        node_id: NodeId,
        *,
        broker_epoch: Callable[[], int],
        metadata: ClusterMetadata,
        link: ControllerLink,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._link = link
        #: Current log dir of each replica for which the controller may have another one.
        self._pending: dict[TopicIdPartition, UUID] = {}
        self._wake = asyncio.Event()

    def on_opened(self, topic_id: UUID, index: int, directory_id: UUID) -> None:
        state = self._metadata.image.partition(topic_id, index)
        if state is None or self._node_id not in state.replicas:
            return
        key = TopicIdPartition(topic_id, index)
        if state.directories[state.replicas.index(self._node_id)] == directory_id:
            self._pending.pop(key, None)
            return
        self._pending[key] = directory_id
        self._wake.set()

    async def run(self) -> None:
        """Runs as a task of the node after its registration."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                chosen = dict(list(self._pending.items())[:REPLICAS_MAX])
                reply = await self._link.request(
                    self._request(chosen), VERSIONS, AssignReplicasToDirsResponse
                )
                if reply.error_code:
                    # The controller does not know the current registration yet.
                    LOGGER.debug("directory assignment rejected: error %d", reply.error_code)
                    await asyncio.sleep(RETRY_MS / 1000)
                    continue
                # Replicas with an error of their own were deleted or moved in the meantime.
                for key, directory_id in chosen.items():
                    if self._pending.get(key) == directory_id:
                        del self._pending[key]

    def _request(self, chosen: dict[TopicIdPartition, UUID]) -> AssignReplicasToDirsRequest:
        by_directory: dict[UUID, dict[UUID, list[int]]] = {}
        for (topic_id, index), directory_id in chosen.items():
            by_directory.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=directory_id,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                AssignReplicasToDirsRequestPartitionData(partition_index=index)
                                for index in indexes
                            ],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in by_directory.items()
            ],
        )
