"""Functions of the user that see every record that comes in and every commit."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from lograft.client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

LOGGER: Final = logging.getLogger(__name__)

Polled = dict[TopicPartition, list[ConsumerRecord]]


class ConsumerInterceptor(Protocol):
    """Sees what is read before the program does, and what is committed.

    class Counting:
        count = 0

        def on_consume(self, records):
            self.count += len(records)
            return records

        def on_commit(self, offsets):
            print(offsets)

    Consumer(bootstrap_servers="localhost:9092", interceptor_classes=[Counting()])
    """

    def on_consume(self, records: Polled) -> Polled:
        """The records to give to the program instead, or the same."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...


class ConsumerInterceptors:
    """All of them, in order. One that raises is reported and breaks nothing."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._all = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_consume(self, records: Polled) -> Polled:
        for one in self._all:
            try:
                made: Any = one.on_consume(records)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_consume", one)
                continue
            if isinstance(made, dict):
                records = made
            else:
                LOGGER.error("interceptor %r gave %r in on_consume, not records", one, made)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for one in self._all:
            try:
                one.on_commit(offsets)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_commit", one)
