"""Histories of client operations, in the format that all checkers read.

One JSON object per line: `{"t": ns, "proc": client, "type": invoke|ok|fail|info, "f": operation,
"v": {…}}`. `info` means that the outcome is unknown (a timeout, a lost connection); it is never
treated as `fail`. Nodes may add events of type `probe`.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

EventType: TypeAlias = Literal["invoke", "ok", "fail", "info", "probe"]
EVENT_TYPES: Final = ("invoke", "ok", "fail", "info", "probe")


@dataclass(frozen=True, slots=True)
class Event:
    t: int
    proc: str
    type: EventType
    f: str
    v: dict[str, Any] = field(default_factory=dict)
    #: Position in the history: orders events at the same instant.
    index: int = 0

    def to_json(self) -> str:
        line = {"t": self.t, "proc": self.proc, "type": self.type, "f": self.f, "v": self.v}
        return json.dumps(line, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """An invocation and its completion; one that never completed has type `info`."""

    proc: str
    f: str
    type: EventType
    arguments: dict[str, Any]
    result: dict[str, Any]
    #: Positions in the history.
    invoked: int
    completed: int


class History:
    """Records events and pairs them into operations."""

    def __init__(self, now_ns: Callable[[], int] = lambda: 0) -> None:
        self.events: list[Event] = []
        self._now_ns = now_ns
        #: Cache for `operations`: number of events, and their operations.
        self._paired: tuple[int, list[Operation]] = (-1, [])

    def record(self, proc: str, type: EventType, f: str, **v: Any) -> None:
        self.events.append(Event(self._now_ns(), proc, type, f, v, len(self.events)))

    def to_jsonl(self) -> str:
        return "".join(event.to_json() + "\n" for event in self.events)

    @classmethod
    def from_jsonl(cls, lines: Iterable[str]) -> "History":
        history = cls()
        for line in lines:
            if not line.strip():
                continue
            fields = json.loads(line)
            if fields["type"] not in EVENT_TYPES:
                raise ValueError(f"unknown event type {fields['type']!r}")
            history.events.append(Event(**fields, index=len(history.events)))
        return history

    def operations(self, *kinds: str) -> list[Operation]:
        """Returns the operations of these kinds, or all. A process has one operation at a time.

        A process with several requests in flight uses a name for each of them (`p1#7`).
        """
        if self._paired[0] != len(self.events):
            self._paired = (len(self.events), self._pair())
        return [each for each in self._paired[1] if not kinds or each.f in kinds]

    def _pair(self) -> list[Operation]:
        pending: dict[str, Event] = {}
        operations = []
        for event in self.events:
            if event.type == "invoke":
                if event.proc in pending:
                    raise ValueError(
                        f"{event.proc} invokes {event.f} while another operation is pending"
                    )
                pending[event.proc] = event
            elif event.type != "probe":
                invoked = pending.pop(event.proc, None)
                if invoked is None or invoked.f != event.f:
                    raise ValueError(f"{event.proc} completes {event.f}, which it did not invoke")
                operations.append(_operation(invoked, event.type, event.v, event.index))
        end = len(self.events)
        operations += [_operation(invoked, "info", {}, end) for invoked in pending.values()]
        operations.sort(key=lambda operation: operation.invoked)
        return operations

    def probes(self, f: str) -> Iterator[Event]:
        return (event for event in self.events if event.type == "probe" and event.f == f)


def _operation(
    invoked: Event, type: EventType, result: dict[str, Any], completed: int
) -> Operation:
    return Operation(invoked.proc, invoked.f, type, invoked.v, result, invoked.index, completed)
