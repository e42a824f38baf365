"""An awaitable that is already complete: a loop over buffered records switches no tasks."""

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
