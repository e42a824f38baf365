"""Builds Python source for one message class in one version, with the names that it uses."""

from collections.abc import Callable
from typing import Any

from lograft.wire.message import Message


class SourceBuilder:
    """Shared by the compilers of readers and writers. Used once, for one class and version."""

    def __init__(self, kind: type[Message], version: int, names: dict[str, Any]) -> None:
        self._kind = kind
        self._version = version
        self._flexible = version >= kind.FLEXIBLE_SINCE
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0
        #: The globals of the compiled code.
        self._names = names

    def _compile(self, source: str, function: str) -> Callable[..., Any]:
        label = f"<{self._kind.__name__} v{self._version} {function}>"
        exec(compile(source, label, "exec"), self._names)
        compiled: Callable[..., Any] = self._names[function]
        return compiled

    def _emit(self, line: str) -> None:
        self._lines.append("  " * self._depth + line)

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _constant(self, prefix: str, value: object) -> str:
        for name, known in self._names.items():
            if known is value:
                return name
        name = self._name(prefix)
        self._names[name] = value
        return name
