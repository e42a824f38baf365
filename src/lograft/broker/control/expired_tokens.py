"""Removes delegation tokens that have expired, on the active controller."""

import asyncio
import logging
from typing import Final

from lograft.broker.control.controller import Controller
from lograft.broker.errors import NotController
from lograft.metadata.delegation_tokens import REMOVED_MAX, remove_expired_tokens
from lograft.model.seams import Clock
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.delegation_tokens import token_settings

LOGGER: Final = logging.getLogger(__name__)


class ExpiredTokenRemover:
    def __init__(self, controller: Controller, config: BrokerConfig, clock: Clock) -> None:
        self._controller = controller
        self._config = config
        self._clock = clock

    async def run(self) -> None:
        """Runs as a task of the node, which ends at once if tokens are disabled."""
        if token_settings(self._config) is None:
            return
        interval_s = self._config.delegation_token_expiry_check_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            if self._controller.is_active:
                await self._remove()

    async def _remove(self) -> None:
        count = REMOVED_MAX
        while count == REMOVED_MAX:
            try:
                removed = await self._controller.submit(
                    lambda image: remove_expired_tokens(image, self._clock.wall_ms())
                )
            except NotController:
                return
            count = len(removed)
            if removed:
                LOGGER.info("removed %d expired delegation tokens", count)
