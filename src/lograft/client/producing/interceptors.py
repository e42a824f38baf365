"""Interceptors: objects of the application that are called for every record and acknowledgement."""

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from lograft.client.types import Acknowledged

LOGGER: Final = logging.getLogger(__name__)


class Outgoing(NamedTuple):
    """A record as the application passed it, before it is serialized.

    class Stamping:
        def on_send(self, record: Outgoing) -> Outgoing:
            return record._replace(headers=[*record.headers, ("from", b"here")])

        def on_acknowledgement(self, acknowledged, error):
            print(acknowledged or error)

    Producer(bootstrap_servers="localhost:9092", interceptor_classes=[Stamping()])
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Interceptor(Protocol):
    """Called for every record and every acknowledgement. Exceptions are logged and otherwise
    ignored; see `Outgoing`.

        settings = {"bootstrap.servers": "localhost:9092"}
        async with Producer(settings, interceptor_classes=[interceptor]) as producer:
            await producer.send("topic", b"value")
    """

    def on_send(self, record: Outgoing) -> Outgoing:
        """Returns the record to send, which may be the same."""

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        """Called with the acknowledgement of a record, or with its failure, also if it was never
        buffered (its value cannot be serialized)."""


class Interceptors:
    """Calls all interceptors, in order. Logs their exceptions."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: Outgoing) -> Outgoing:
        for interceptor in self._interceptors:
            try:
                result: Any = interceptor.on_send(record)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_send", interceptor)
                continue
            if isinstance(result, Outgoing):
                record = result
            else:
                LOGGER.error(
                    "interceptor %r returned %r from on_send, not an Outgoing record: ignored",
                    interceptor,
                    result,
                )
        return record

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(acknowledged, error)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_acknowledgement", interceptor)
