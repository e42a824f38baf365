"""Base class of the clients: an async context manager that warns if it is never closed."""

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class AsyncResource(ABC):
    """Base class for async context managers. Without `async with`, await `start` and `close`."""

    @abstractmethod
    async def start(self) -> None:
        """Opens the client. `async with` calls it; call it yourself where that does not fit."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def _describe_open(self) -> str | None:
        """Returns the kind of client and its unfinished work, or None if it is not open. Must also
        work if `__init__` raised."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        description = self._describe_open()
        if description is not None:
            warnings.warn(
                f"unclosed {description}: use `async with`, or await close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
