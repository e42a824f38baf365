"""Requests that consumers send, made from what they mean."""

from typing import Final

from lograft.client.consuming.sessions import LAST_EPOCH, Plan
from lograft.client.consuming.settings import ConsumerSettings
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

#: The last version that speaks of topics by their names.
FETCH_NAMES_UNTIL: Final = 12
READ_COMMITTED: Final = 1


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


def last_request(session_id: int) -> FetchRequest:
    """Ends a session."""
    return FetchRequest(session_id=session_id, session_epoch=LAST_EPOCH)
