"""Requests that a schema allows: plausible for a field's name, or as wrong as its type allows."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from lograft.model.settings.broker import BROKER_CONFIGS
from lograft.model.settings.topic import TOPIC_CONFIGS
from lograft.wire.message import Message
from tests.fuzz.hostile_batches import HostileBatches
from tests.properties.random_messages import RandomMessages

#: Topics whose records must survive: only the APIs of the data path use their names.
KEPT: Final = ("kept", "kept-lz4", "kept-time", "kept-keys", "kept-flushed")
#: Topics that any request may change or delete.
TOYS: Final = ("toy", "toy-2", "toy.3")
DATA_APIS: Final = frozenset({0, 1, 2, 3, 18, 23, 35, 60, 75})

BAD_NAMES: Final = (
    "",
    ".",
    "..",
    "a/b",
    "../../etc/passwd",
    "sp ace",
    "grün",
    "日本",
    "nul\0",
    "new\nline",
    "\x1b[31m",
    "%s%n",
    "x" * 249,
    "x" * 250,
    "y" * 32767,
    "__consumer_offsets",
    "__cluster_metadata",
    "__transaction_state",
)
CONFIG_VALUES: Final = (
    "",
    "0",
    "1",
    "-1",
    "true",
    "TRUE",
    "nope",
    "compact",
    "delete",
    "compact,delete",
    "delete,,compact",
    "gzip",
    "zstd",
    "LogAppendTime",
    "1000",
    "14",
    "60000",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999",
    "0.5",
    "nan",
    "inf",
    "1e9",
    " 5 ",
    "٣",
    "1_000",
    "\0",
    "ü" * 50,
    "v" * 32767,
)
_INTS: Final = {8: (-128, 127), 16: (-32768, 32767), 32: (-(2**31), 2**31 - 1)}

#: Plausible numbers by field name.
NUMBERS: Final[dict[str, Sequence[int]]] = {
    "acks": (-1, -1, 1, 1, 0, 2),
    "timeout_ms": (0, 1, 100, 30_000, -1, 2**31 - 1),
    "max_wait_ms": (0, 1, 10, 500, -1, 2**31 - 1),
    "min_bytes": (0, 1, 1, 1000, -1, 2**31 - 1),
    "max_bytes": (2**31 - 1, 1 << 20, 0, 1, -1),
    "partition_max_bytes": (1 << 20, 0, 1, 100, -1, 2**31 - 1),
    "isolation_level": (0, 1, 2, -1),
    "session_id": (0, 0, 0, 1, -1),
    "session_epoch": (-1, 0, 0, 1, 1, 2, 3, -2),
    "replica_id": (-1, -1, -1, -2, 0, 1),
    "fetch_offset": (0, 0, 1, 5, 40, -1, 2**62),
    "last_fetched_epoch": (-1, -1, 0, 1),
    "current_leader_epoch": (-1, -1, 0, 1, 7),
    "leader_epoch": (-1, 0, 1, 7),
    "log_start_offset": (-1, 0),
    "offset": (0, 1, 5, -1, -2, 2**62),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1_767_225_600_000, 2**63 - 1, -(2**63)),
    "partition": (0, 0, 0, 1, 2, 3, -1),
    "partition_index": (0, 0, 0, 1, 2, 3, -1),
    "index": (0, 0, 0, 1, 2, 3, -1),
    "partition_indexes": (0, 0, 1, 2, -1),
    "partitions": (0, 0, 1, 2, -1),
    "num_partitions": (-1, 1, 1, 2, 3, 0, 12, 10_001, 2**31 - 1),
    "count": (1, 2, 3, 4, 5, 0, -1, 20_000, 2**31 - 1),
    "replication_factor": (-1, 1, 1, 1, 0, 2, 3, 32767),
    "broker_id": (2, 0, -1, 3),
    "broker_ids": (1, 1, 1, 2, 0, -1),
    "resource_type": (2, 2, 2, 4, 8, 16, 32, 0, 1, -1, 127),
    "resource_types": (2, 4, 8, 16, 32, 0, -1),
    "config_operation": (0, 0, 1, 2, 3, 4, -1),
    "producer_id": (-1, -1, 0, 5),
    "producer_epoch": (-1, -1, 0, 5),
    "key_type": (0, 1, 2, 3, -1),
    "endpoint_type": (1, 1, 2, 0),
    "response_partition_limit": (2000, 1, 2, 0, -1, 2**31 - 1),
    "max_version_level": (30, 29, 7, 1, 0, -1, 32767),
    "upgrade_type": (1, 2, 3, 0, 127),
    "subscription_id": (0, 0, 1, -1),
    "compression_type": (0, 1, 4, 5, -1),
}


class HostileRequests(RandomMessages):
    """`topic_ids` returns the current ids of the topics that may be named."""

    def __init__(
        self,
        seed: int | str,
        *,
        fullness: float,
        batches: HostileBatches,
        topic_ids: Callable[[Sequence[str]], list[UUID]],
        wildness: float,
    ) -> None:
        super().__init__(seed, fullness=fullness)
        self._batches = batches
        self._topic_ids = topic_ids
        self._wildness = wildness
        self._topics: tuple[str, ...] = TOYS
        self._of_broker = False
        #: Sessions that the node has opened; the latest ones are used.
        self.fetch_sessions: deque[int] = deque(maxlen=3)

    def request(self, kind: type[Message], version: int) -> Message:
        self._topics = (*KEPT, *TOYS) if kind.KEY in DATA_APIS else TOYS
        return self.build(kind, version)

    def build(self, kind: type[Message], version: int) -> Message:
        # Settings have a field "name" too, like the topics in which they are nested.
        outer, self._of_broker = self._of_broker, kind.__name__.endswith("Config")
        try:
            return super().build(kind, version)
        finally:
            self._of_broker = outer

    def scalar(self, kind: str, name: str) -> object:
        chance = self.chance
        if kind == "records":
            return self._batches.any()
        if chance.random() < self._wildness:
            return self._wild(kind, name)
        if kind == "uuid":
            known = self._topic_ids(self._topics)
            return chance.choice(known) if known else UUID(int=0)
        if kind == "string":
            return self._text(name)
        if name == "session_id" and self.fetch_sessions and chance.random() < 0.5:
            return chance.choice(self.fetch_sessions)
        if name in NUMBERS and kind.startswith("int"):
            value = chance.choice(NUMBERS[name])
            low, high = _INTS.get(int(kind[3:]), (-(2**63), 2**63 - 1))
            return max(low, min(high, value))
        return super().scalar(kind, name)

    def _text(self, name: str) -> str:
        chance = self.chance
        if self._of_broker:
            if name == "name":
                return self._config_name()
            return chance.choice(CONFIG_VALUES[:15])
        match name:
            case "feature":
                return chance.choice(("metadata.version", "kraft.version", "share.version", "x"))
            case "configuration_keys":
                return self._config_name()
            case "client_software_name" | "client_software_version":
                return chance.choice(("librdkafka", "1.2.3", "", "-"))
            case "resource_name":
                return chance.choice((*self._topics, "", "1", "2", "root", "lograft"))
            case _:
                return chance.choice((*self._topics, *self._topics, "fresh", "fresh_2"))

    def _config_name(self) -> str:
        names = sorted(TOPIC_CONFIGS if self.chance.random() < 0.7 else BROKER_CONFIGS)
        return self.chance.choice(names)

    def _wild(self, kind: str, name: str) -> object:
        if kind != "string":
            return super().scalar(kind, name)
        if self._of_broker and name == "value":
            return self.chance.choice(CONFIG_VALUES)
        return self.chance.choice(BAD_NAMES)


def with_unknown_tags(frame: bytes, chance: random.Random) -> bytes:
    """Adds unknown tags at the end of a request: a flexible one ends with its count of tags."""
    tags = sorted(chance.sample(range(50, 20_000), chance.randint(1, 5)))
    tail = bytes([len(tags)])
    for tag in tags:
        value = chance.randbytes(chance.randrange(20))
        tail += _varint(tag) + _varint(len(value)) + value
    return frame[:-1] + tail


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
