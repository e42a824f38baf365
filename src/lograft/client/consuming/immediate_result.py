"""An awaitable whose value is there already: it costs a loop over records no task switch."""

from collections.abc import Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ImmediateResult(Generic[T]):
    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, T]:
        # A generator that never yields.
        yield from ()
        return self.value
