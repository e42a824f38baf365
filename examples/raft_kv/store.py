"""The key-value store as a state machine: set, get, delete; applies each command only once.

Clients number their commands. A client that gets no response sends the command again with the same
number, possibly to another server, and gets the first response. Each client has one command in
flight, so the last response of each client is sufficient.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from examples.raft_kv.packing import Malformed, Value, content, number, pack, unpack_tuple, values

SET: Final = 1
DELETE: Final = 2

DONE: Final = 0
REFUSED: Final = 1

KEY_BYTES_MAX: Final = 1 << 10
VALUE_BYTES_MAX: Final = 1 << 20
#: Total size of keys and values. It must be the same on every replica, since they must reject the
#: same commands.
STORE_BYTES_MAX: Final = 64 << 20
#: Number of clients whose last response is stored; the least recently active one is removed. If it
#: then retries a command, the command is applied twice.
CLIENTS_MAX: Final = 10_000
CLIENT_ID_BYTES: Final = 16


def set_command(client: bytes, sequence: int, key: bytes, value: bytes) -> bytes:
    return pack((client, sequence, SET, key, value))


def delete_command(client: bytes, sequence: int, key: bytes) -> bytes:
    return pack((client, sequence, DELETE, key, b""))


class KeyValueStore:
    """A `StateMachine`. Responses are tuples: (DONE, 1 if the key existed, otherwise 0) or
    (REFUSED, reason), and to a query (DONE, the value or nothing)."""

    def __init__(self) -> None:
        self._items: dict[bytes, bytes] = {}
        self._size_bytes = 0
        #: The number and response of each client's last command, in the order of their last use.
        self._clients: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> dict[bytes, bytes]:
        return dict(self._items)

    # ── the protocol ─────────────────────────────────────────────────────────────────────────

    def apply(self, command: bytes) -> bytes:
        try:
            parsed = check_command(command)
        except Malformed as error:
            return pack((REFUSED, f"invalid command: {error}"))
        client, sequence, operation, key, value = parsed
        last = self._clients.get(client)
        if last is not None and sequence <= last[0]:
            self._clients.move_to_end(client)
            if sequence < last[0]:
                return pack((REFUSED, f"command {sequence} arrived after {last[0]} was applied"))
            return last[1]
        answer = self._set(key, value) if operation == SET else self._delete(key)
        self._clients[client] = (sequence, answer)
        self._clients.move_to_end(client)
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
        return answer

    def query(self, question: bytes) -> bytes:
        return pack((DONE, self._items.get(question)))

    def snapshot(self) -> Callable[[], bytes]:
        # Keys and values are immutable, so shallow copies of the two tables are sufficient.
        items, clients = self._items.copy(), self._clients.copy()
        return lambda: pack(
            (
                tuple(part for item in items.items() for part in item),
                tuple((client, *last) for client, last in clients.items()),
            )
        )

    def restore(self, snapshot: bytes) -> None:
        flat, clients = (values(part) for part in values(unpack_tuple(snapshot), 2))
        pairs = zip(flat[::2], flat[1::2], strict=True)
        self._items = {content(key): content(value) for key, value in pairs}
        self._size_bytes = sum(len(key) + len(value) for key, value in self._items.items())
        self._clients = OrderedDict()
        for entry in clients:
            client, sequence, answer = values(entry, 3)
            self._clients[content(client)] = (number(sequence), content(answer))

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def _set(self, key: bytes, value: bytes) -> bytes:
        before = self._items.get(key)
        grown = len(value) - len(before) if before is not None else len(key) + len(value)
        if self._size_bytes + grown > STORE_BYTES_MAX:
            return pack(
                (REFUSED, f"the store is full: its maximum size is {STORE_BYTES_MAX} bytes")
            )
        self._items[key] = value
        self._size_bytes += grown
        return pack((DONE, int(before is not None)))

    def _delete(self, key: bytes) -> bytes:
        before = self._items.pop(key, None)
        if before is not None:
            self._size_bytes -= len(key) + len(before)
        return pack((DONE, int(before is not None)))


def check_command(command: bytes) -> tuple[bytes, int, int, bytes, bytes]:
    """Returns client, sequence number, operation, key and value. Raises Malformed with the
    reason."""
    parts: tuple[Value, ...] = values(unpack_tuple(command), 5)
    client, sequence, operation = content(parts[0]), number(parts[1]), number(parts[2])
    if len(client) != CLIENT_ID_BYTES or sequence < 0 or operation not in (SET, DELETE):
        raise Malformed("expected client, number and operation")
    value = content(parts[4])
    if len(value) > VALUE_BYTES_MAX:
        raise Malformed(f"a value of {len(value)} bytes exceeds the maximum of {VALUE_BYTES_MAX}")
    return client, sequence, operation, check_key(content(parts[3])), value


def check_key(key: bytes) -> bytes:
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise Malformed(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")
    return key
