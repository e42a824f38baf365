"""The client for Python: asyncio first, with a synchronous face in `lograft.client.blocking`.

    from lograft.client import Producer

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        acknowledged = await producer.send("greetings", b"hello", key=b"world")

Every public name can be imported from here. Errors and values are small and are loaded at once,
clients when their names are first used. A client belongs to the event loop in which it was opened.
Settings are Kafka's, by their dotted names in a mapping or as typed keywords. Whatever a client
raises is a `ClientError`, or `InvalidConfig` for settings that cannot be.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lograft.client.errors import (
    AuthenticationFailed,
    BrokerError,
    BufferFull,
    ClientError,
    Closed,
    CommitFailed,
    ConnectionFailed,
    FencedInstance,
    InvalidTopic,
    NotAuthorized,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutcomeUnknown,
    ProducerFenced,
    RebalanceInProgress,
    RecordTooLarge,
    RecordTooLargeToSend,
    SerializationFailed,
    TimedOut,
    TopicMissing,
    TransactionAborted,
    TransactionFailed,
    UnsupportedByBroker,
    WrongUse,
)
from lograft.client.serializers import json_deserializer, json_serializer, text_deserializer
from lograft.client.types import (
    Acknowledged,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetRange,
    TopicPartition,
)
from lograft.model.errors import ErrorCode, InvalidConfig

if TYPE_CHECKING:
    from lograft.client.columns.sending import TableDelivery
    from lograft.client.producer import Producer
    from lograft.client.producing.batches import Delivery
    from lograft.client.producing.interceptors import Interceptor, Outgoing
    from lograft.client.producing.partitioner import Partitioner

#: Loaded when they are first used: the modules of this package that have them.
_LAZY: Final = {
    "Delivery": "producing.batches",
    "Interceptor": "producing.interceptors",
    "Outgoing": "producing.interceptors",
    "Partitioner": "producing.partitioner",
    "Producer": "producer",
    "TableDelivery": "columns.sending",
}

__all__ = [
    "Acknowledged",
    "AuthenticationFailed",
    "BrokerError",
    "BufferFull",
    "ClientError",
    "Closed",
    "CommitFailed",
    "ConnectionFailed",
    "Delivery",
    "ErrorCode",
    "FencedInstance",
    "GroupMetadata",
    "Interceptor",
    "InvalidConfig",
    "InvalidTopic",
    "NotAuthorized",
    "NotEnoughReplicas",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "OffsetRange",
    "OutcomeUnknown",
    "Outgoing",
    "Partitioner",
    "Producer",
    "ProducerFenced",
    "RebalanceInProgress",
    "RecordTooLarge",
    "RecordTooLargeToSend",
    "SerializationFailed",
    "TableDelivery",
    "TimedOut",
    "TopicMissing",
    "TopicPartition",
    "TransactionAborted",
    "TransactionFailed",
    "UnsupportedByBroker",
    "WrongUse",
    "json_deserializer",
    "json_serializer",
    "text_deserializer",
]


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
