"""Checks whether the history of a register is linearizable (Wing and Gong, with memoization).

Each operation must take effect at one instant between its call and its completion. A write without
a response may take effect at any time after its call, or never."""

from dataclasses import dataclass
from typing import Literal

NEVER = 2**63


@dataclass(slots=True)
class Operation:
    kind: Literal["get", "set", "delete"]
    called_ns: int
    #: Value written by a set.
    value: bytes | None = None
    completed_ns: int = NEVER
    #: Value returned by a get; whether a delete found a value.
    found: bytes | bool | None = None

    @property
    def is_open(self) -> bool:
        return self.completed_ns == NEVER


def is_linearizable(history: list[Operation]) -> bool:
    """Returns whether the history is linearizable, for a register that is empty at first."""
    operations = sorted(
        (each for each in history if not (each.is_open and each.kind == "get")),
        key=lambda each: each.called_ns,
    )
    must = sum(1 << n for n, each in enumerate(operations) if not each.is_open)
    seen: set[tuple[int, bytes | None]] = set()
    stack: list[tuple[int, bytes | None]] = [(0, None)]
    while stack:
        done, value = stack.pop()
        if done & must == must:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        stack += _next(operations, done, value)
    return False


def _next(
    operations: list[Operation], done: int, value: bytes | None
) -> list[tuple[int, bytes | None]]:
    """Returns the states after every operation that may take effect next."""
    pending = [(n, each) for n, each in enumerate(operations) if not done >> n & 1]
    # An operation called after another one completed cannot precede it.
    horizon_ns = min(each.completed_ns for _, each in pending)
    possible = []
    for n, each in pending:
        if each.called_ns > horizon_ns:
            break
        if each.kind == "get":
            if each.found == value:
                possible.append((done | 1 << n, value))
        elif each.kind == "set":
            possible.append((done | 1 << n, each.value))
        elif each.is_open or each.found == (value is not None):
            possible.append((done | 1 << n, None))
    return possible
