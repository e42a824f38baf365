"""The keys of an identity provider: read before they are needed, and refreshed in the background.

A login never waits for the provider. Logins are rejected until the keys have been read, and if the
token's key is not in the set; an unknown key brings the next refresh forward, since the provider
may have begun to use it. If the provider cannot be reached, the last keys remain valid, as in
Kafka.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from lograft.model.errors import InvalidConfig, LograftError
from lograft.model.seams import Runtime, Task
from lograft.model.settings.oauthbearer import OAuthBearerSettings

if TYPE_CHECKING:
    from lograft.security.json_web_keys import KeySet

LOGGER: Final = logging.getLogger(__name__)
#: Anyone can send a token with an unknown key.
EXPEDITED_INTERVAL_MS: Final = 10_000

#: Returns the bytes of a key set. Raises InvalidConfig, whose message never includes those bytes.
ReadKeySet: TypeAlias = Callable[[Runtime, OAuthBearerSettings], Awaitable[bytes]]


class KeySetSource:
    """The keys for one listener that offers OAUTHBEARER. Call `start`, then `keys` at any time, and
    `close`."""

    def __init__(
        self, runtime: Runtime, settings: OAuthBearerSettings, read_key_set: ReadKeySet
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._read = read_key_set
        self._wanted = asyncio.Event()
        self._expedited_ms: int | None = None
        self._task: Task | None = None
        #: None until they have been read.
        self.keys: KeySet | None = None

    @property
    def is_file(self) -> bool:
        url = self._settings.key_set_url
        return url is not None and url.scheme == "file"

    def start(self) -> None:
        self._task = self._runtime.spawn(self._refresh(), name="keys of an identity provider")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def load(self) -> None:
        """Reads the keys once. Raises InvalidConfig."""
        # Imported here because most nodes do not need `cryptography`.
        from lograft.security.json_web_keys import parse_key_set

        data = await self._read(self._runtime, self._settings)
        try:
            self.keys = parse_key_set(data)
        except ValueError as error:
            raise InvalidConfig(f"cannot use the key set of OAUTHBEARER: {error}") from None

    def expedite(self) -> None:
        """A token has an unknown key: the keys are read again soon, but not too often."""
        now_ms = self._runtime.clock.mono_ms()
        last_ms = self._expedited_ms
        if last_ms is None or now_ms - last_ms >= EXPEDITED_INTERVAL_MS:
            self._expedited_ms = now_ms
            self._wanted.set()

    async def _refresh(self) -> None:
        settings = self._settings
        failures = 0
        while True:
            self._wanted.clear()
            try:
                await self.load()
            except LograftError as error:
                if not failures:
                    LOGGER.error("OAUTHBEARER: %s", error)
                failures += 1
            except Exception:
                LOGGER.exception("OAUTHBEARER: reading the keys failed")
                failures += 1
            else:
                if failures:
                    LOGGER.info("OAUTHBEARER: the keys of the identity provider have been read")
                failures = 0
            if failures:
                exponent = min(failures - 1, 30)
                pause_ms = min(
                    settings.retry_backoff_ms << exponent,
                    max(settings.retry_backoff_max_ms, settings.retry_backoff_ms),
                )
                await asyncio.sleep(pause_ms / 1000)
                continue
            try:
                async with asyncio.timeout(settings.refresh_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                pass
