"""Base class of the clients: async context managers that warn when they are dropped open."""

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Opened(ABC):
    @abstractmethod
    async def start(self) -> None:
        """Opens it, where `async with` does not fit."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def _describe_open(self) -> str | None:
        """What the client is and what it leaves undone; None if it is not open. Also called for
        objects whose `__init__` has raised."""

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
