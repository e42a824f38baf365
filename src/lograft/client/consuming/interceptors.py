"""Interceptors: objects of the user that see all records that are read and all commits."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from lograft.client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

LOGGER: Final = logging.getLogger(__name__)

Polled = dict[TopicPartition, list[ConsumerRecord]]


class ConsumerInterceptor(Protocol):
    """Sees records before the application does, and committed offsets.

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
        """Returns the records that the application gets, changed or not."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...


class ConsumerInterceptors:
    """Calls all interceptors in order. The exception of one is logged and affects nothing else."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: Polled) -> Polled:
        for interceptor in self._interceptors:
            try:
                result: Any = interceptor.on_consume(records)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_consume", interceptor)
                continue
            if isinstance(result, dict):
                records = result
            else:
                LOGGER.error(
                    "interceptor %r returned %r from on_consume instead of records",
                    interceptor,
                    result,
                )
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                LOGGER.exception("interceptor %r failed in on_commit", interceptor)
