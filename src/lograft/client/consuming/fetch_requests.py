"""Builds Fetch requests from plans."""

from struct import Struct
from typing import Final

from lograft.client.broker_connection import BrokerConnection
from lograft.client.consuming.fetch_sessions import LAST_EPOCH, FetchPlan
from lograft.client.consuming.settings import ConsumerSettings
from lograft.model.seams import Buffer
from lograft.wire.headers import CORRELATION_ID_END, CORRELATION_ID_START, request_parts
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

#: The last version that identifies topics by name.
LAST_VERSION_WITH_TOPIC_NAMES: Final = 12
READ_COMMITTED: Final = 1
_OFFSET: Final = Struct(">q")
#: Placeholder that locates the offset in the encoded request.
_OFFSET_PLACEHOLDER: Final = 0x5A1F_00D1_2B3C_4D5E


def build_fetch_request(settings: ConsumerSettings, plan: FetchPlan) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for (name, index), partition in plan.send.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=partition.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=partition.offset,
                partition_max_bytes=partition.bytes_max,
            )
        )
    forgotten_topics: dict[object, ForgottenTopic] = {}
    for (name, index), topic_id in plan.forget.items():
        forgotten = forgotten_topics.get((name, topic_id))
        if forgotten is None:
            forgotten = forgotten_topics[name, topic_id] = ForgottenTopic(
                topic=name, topic_id=topic_id
            )
        forgotten.partitions.append(index)
    return FetchRequest(
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=READ_COMMITTED if settings.is_read_committed else 0,
        session_id=plan.session_id,
        session_epoch=plan.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten_topics.values()),
        rack_id=settings.client_rack,
    )


class SinglePartitionFetch:
    """The sessionless requests of a consumer that fetches one partition from a broker. They differ
    only in correlation id and offset, so the codec encodes the rest only once."""

    __slots__ = ("_after", "_content", "_head", "_middle", "_pack", "version")

    def __init__(
        self,
        settings: ConsumerSettings,
        connection: BrokerConnection,
        plan: FetchPlan,
        version: int,
    ) -> None:
        self._content = _constant_content(connection, plan)
        self.version = version
        ((partition, entry),) = plan.send.items()
        template = plan._replace(send={partition: entry._replace(offset=_OFFSET_PLACEHOLDER)})
        parts = request_parts(
            build_fetch_request(settings, template), version, 0, connection.client_id
        )
        before, placeholder, self._after = b"".join(parts).partition(
            _OFFSET.pack(_OFFSET_PLACEHOLDER)
        )
        assert placeholder
        self._head, self._middle = before[:CORRELATION_ID_START], before[CORRELATION_ID_END:]
        layout = f">{len(self._head)}si{len(self._middle)}sq{len(self._after)}s"
        self._pack = Struct(layout).pack

    def matches(self, connection: BrokerConnection, plan: FetchPlan) -> bool:
        """Whether the request of the plan differs only in the offset."""
        return self._content == _constant_content(connection, plan)

    def encode(self, correlation_id: int, offset: int) -> list[Buffer]:
        return [self._pack(self._head, correlation_id, self._middle, offset, self._after)]


def _constant_content(connection: BrokerConnection, plan: FetchPlan) -> tuple[object, ...]:
    ((partition, (topic_id, _, leader_epoch, bytes_max)),) = plan.send.items()
    return connection, partition, topic_id, leader_epoch, bytes_max


def build_closing_request(session_id: int) -> FetchRequest:
    """Returns the request that closes a fetch session."""
    return FetchRequest(session_id=session_id, session_epoch=LAST_EPOCH)
