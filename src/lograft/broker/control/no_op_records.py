"""NoOpRecords, which an idle active controller writes.

With each of them the quorum proves that it can still commit, and observers can measure their lag. A
quorum of one voter writes none: it has no observers that depend on a majority.
"""

import asyncio
from typing import Final

from lograft.broker.control.controller import Controller
from lograft.broker.errors import NotController
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_OFFSET
from lograft.wire.records.no_op_record import NoOpRecord

#: Sleep interval if metadata.max.idle.interval.ms=0 disables the records.
OFF_MS: Final = 60_000


class NoOpRecordWriter:
    def __init__(self, driver: RaftDriver, controller: Controller, config: BrokerConfig) -> None:
        self._driver = driver
        self._controller = controller
        self._interval_ms = config.metadata_max_idle_interval_ms

    async def run(self) -> None:
        """Runs as a task of the node."""
        seen = NO_OFFSET
        while True:
            await asyncio.sleep((self._interval_ms or OFF_MS) / 1000)
            end = self._driver.log.end_offset
            if end == seen and self._interval_ms and self._can_write():
                try:
                    await self._controller.submit(_write_no_op)
                except NotController:
                    continue
            seen = self._driver.log.end_offset

    def _can_write(self) -> bool:
        return self._controller.is_active and len(self._driver.voters.voters) > 1


def _write_no_op(image: MetadataImage) -> ControllerResult[None]:
    return ControllerResult((NoOpRecord(),), None)
