"""Requests that consumers send, made from what they mean."""

from struct import Struct
from typing import Final

from lograft.client.broker_connection import BrokerConnection
from lograft.client.consuming.fetch_sessions import LAST_EPOCH, Plan
from lograft.client.consuming.settings import ConsumerSettings
from lograft.model.seams import Buffer
from lograft.wire.headers import CORRELATION_ID_END, CORRELATION_ID_START, request_parts
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

#: The last version that speaks of topics by their names.
FETCH_NAMES_UNTIL: Final = 12
READ_COMMITTED: Final = 1
_OFFSET: Final = Struct(">q")
#: Stands for the offset until its place is found.
_OFFSET_MARK: Final = 0x5A1F_00D1_2B3C_4D5E


def fetch_request(settings: ConsumerSettings, plan: Plan) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for (name, partition), wanted in plan.send.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=wanted.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=wanted.leader_epoch,
                fetch_offset=wanted.offset,
                partition_max_bytes=wanted.bytes_max,
            )
        )
    forgotten: dict[object, ForgottenTopic] = {}
    for (name, partition), topic_id in plan.forget.items():
        gone = forgotten.get((name, topic_id))
        if gone is None:
            gone = forgotten[name, topic_id] = ForgottenTopic(topic=name, topic_id=topic_id)
        gone.partitions.append(partition)
    return FetchRequest(
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=READ_COMMITTED if settings.is_read_committed else 0,
        session_id=plan.session_id,
        session_epoch=plan.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
        rack_id=settings.client_rack,
    )


class SinglePartitionFetch:
    """Of one partition, without a session: the requests of a consumer that reads one partition of a
    broker. They are equal but for their numbers and offsets, so the codec writes the rest only
    once."""

    __slots__ = ("_after", "_head", "_meaning", "_middle", "_pack", "version")

    def __init__(
        self, settings: ConsumerSettings, link: BrokerConnection, plan: Plan, version: int
    ) -> None:
        self._meaning = _meaning(link, plan)
        self.version = version
        ((partition, wanted),) = plan.send.items()
        marked = plan._replace(send={partition: wanted._replace(offset=_OFFSET_MARK)})
        parts = request_parts(fetch_request(settings, marked), version, 0, link.client_id)
        before, mark, self._after = b"".join(parts).partition(_OFFSET.pack(_OFFSET_MARK))
        assert mark
        self._head, self._middle = before[:CORRELATION_ID_START], before[CORRELATION_ID_END:]
        layout = f">{len(self._head)}si{len(self._middle)}sq{len(self._after)}s"
        self._pack = Struct(layout).pack

    def means(self, link: BrokerConnection, plan: Plan) -> bool:
        """Whether the plan differs in the offset only."""
        return self._meaning == _meaning(link, plan)

    def parts(self, number: int, offset: int) -> list[Buffer]:
        return [self._pack(self._head, number, self._middle, offset, self._after)]


def _meaning(link: BrokerConnection, plan: Plan) -> tuple[object, ...]:
    ((partition, (topic_id, _, leader_epoch, bytes_max)),) = plan.send.items()
    return link, partition, topic_id, leader_epoch, bytes_max


def last_request(session_id: int) -> FetchRequest:
    """Ends a session."""
    return FetchRequest(session_id=session_id, session_epoch=LAST_EPOCH)
