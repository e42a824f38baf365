"""Tells the controller in which log dir a replica lies, where a broker has several.

The controller leaves the choice to the broker; it must know it to take the right partitions from
the broker when one of its disks fails.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar
from uuid import UUID

from lograft.broker.errors import NotController
from lograft.metadata.directories import assign_directories
from lograft.metadata.errors import Refused
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import Outcome
from lograft.model.types import NodeId, TopicIdPartition

RETRY_MS: Final = 500
R = TypeVar("R")


class Submit(Protocol):
    def __call__(self, decision: Callable[[MetadataImage], Outcome[R]]) -> Awaitable[R]: ...


class DirectoryAssigner:
    def __init__(
        self,
        node_id: NodeId,
        *,
        broker_epoch: Callable[[], int],
        image: Callable[[], MetadataImage],
        submit: Submit,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._submit = submit
        #: The newest place of each replica that the controller may not know.
        self._pending: dict[TopicIdPartition, UUID] = {}
        self._wake = asyncio.Event()

    def opened(self, topic_id: UUID, index: int, directory_id: UUID) -> None:
        state = self._image().partition(topic_id, index)
        if state is None or self._node_id not in state.replicas:
            return
        key = TopicIdPartition(topic_id, index)
        if state.directories[state.replicas.index(self._node_id)] == directory_id:
            self._pending.pop(key, None)
            return
        self._pending[key] = directory_id
        self._wake.set()

    async def run(self) -> None:
        """A task of the node, from its registration on."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            pending, self._pending = self._pending, {}
            try:
                await self._tell(pending)
            except (NotController, Refused):
                # Another controller or another registration: what is newer goes before.
                self._pending = pending | self._pending
                self._wake.set()
                await asyncio.sleep(RETRY_MS / 1000)

    async def _tell(self, pending: dict[TopicIdPartition, UUID]) -> None:
        by_directory: dict[UUID, list[TopicIdPartition]] = {}
        for key, directory_id in pending.items():
            by_directory.setdefault(directory_id, []).append(key)
        if by_directory:
            # What is refused one by one was deleted or moved meanwhile.
            await self._submit(
                partial(
                    assign_directories,
                    broker_id=self._node_id,
                    broker_epoch=self._broker_epoch(),
                    assignments=by_directory,
                )
            )
