"""Functions of the user that see every record on its way out and every acknowledgement."""

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from lograft.client.types import Acknowledged

LOGGER: Final = logging.getLogger(__name__)


class Outgoing(NamedTuple):
    """A record as the program gave it, before it is serialized.

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
    """Sees every record on its way out and every acknowledgement. One that raises is reported and
    breaks nothing; see `Outgoing`.

        settings = {"bootstrap.servers": "localhost:9092"}
        async with Producer(settings, interceptor_classes=[interceptor]) as one:
            await one.send("topic", b"value")
    """

    def on_send(self, record: Outgoing) -> Outgoing:
        """The record to send instead, or the same."""

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        """Where the record is, or why it is not in the log: also if it never came into the buffer,
        as with a value that cannot be serialized."""


class Interceptors:
    """All of them, in order. One that raises is reported and breaks nothing."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._all = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_send(self, record: Outgoing) -> Outgoing:
        for one in self._all:
            try:
                made: Any = one.on_send(record)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_send", one)
                continue
            if isinstance(made, Outgoing):
                record = made
            else:
                LOGGER.error("interceptor %r gave %r in on_send, not a record", one, made)
        return record

    def on_acknowledgement(
        self, acknowledged: Acknowledged | None, error: Exception | None
    ) -> None:
        for one in self._all:
            try:
                one.on_acknowledgement(acknowledged, error)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_acknowledgement", one)
