"""Fetch by replicas: the other half of `fetch`, which sends them here.

A follower reads up to the end of the log, not to the high watermark; its fetch tells the leader
how far it has come, which may commit records. It goes on in the same session all the time
(`broker/follower_sessions.py`), and its next request on the connection ends the wait of the one
before. A fetch of the cluster's metadata is not one of these: that is the quorum's.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Context
from lograft.api.errors import code_of
from lograft.broker.broker import Broker
from lograft.broker.fetch_sessions import NO_SESSION, TOPIC_IDS_SINCE, Wanted
from lograft.broker.follower_sessions import FollowerSession, Poll
from lograft.model.errors import LograftError
from lograft.model.types import BrokerEpoch, NodeId
from lograft.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse

NO_BROKER_EPOCH: Final = -1


def handle(
    context: Context, request: FetchRequest, node_id: int
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    broker: Broker = context.broker
    state = request.replica_state
    by_id = context.api_version >= TOPIC_IDS_SINCE

    def why_missing(wanted: Wanted) -> LograftError:
        index = wanted.asked.partition
        if by_id:
            return broker.why_missing_id(wanted.topic_id, index)
        return broker.why_missing(wanted.topic, index)

    try:
        session = broker.follower_sessions.of(
            request, NodeId(node_id), by_id=by_id, why_missing=why_missing, code_of=code_of
        )
    except LograftError as error:
        return FetchResponse(error_code=code_of(error), session_id=NO_SESSION)
    poll = Poll(
        NodeId(node_id),
        BrokerEpoch(NO_BROKER_EPOCH if state is None else state.replica_epoch),
        bytes_max=request.max_bytes,
    )
    session.look(poll, now_ms=broker.clock.mono_ms())
    if _may_answer(session, request, poll):
        return _answer(broker, session, poll)
    context.lets_next = True
    return _wait(broker, session, request, poll, session.epoch)


def _may_answer(session: FollowerSession, request: FetchRequest, poll: Poll) -> bool:
    return (
        poll.is_urgent
        or poll.bytes_read >= request.min_bytes
        or request.max_wait_ms <= 0
        or session.tells_at_once
    )


async def _wait(
    broker: Broker, session: FollowerSession, request: FetchRequest, poll: Poll, epoch: int
) -> FetchResponse:
    """`epoch`: of the session when the request had come; another one means that the next has come
    too."""
    clock = broker.clock
    deadline_ms = clock.mono_ms() + request.max_wait_ms
    try:
        # The next request of the session takes over what there is to say.
        while session.epoch == epoch and (wait_ms := deadline_ms - clock.mono_ms()) > 0:
            if not session.has_due:
                await session.park(wait_ms=wait_ms)
            if session.epoch == epoch:
                session.look(poll, now_ms=clock.mono_ms())
                if _may_answer(session, request, poll):
                    break
    except BaseException:
        # The connection is gone, and with it whoever would go on with the session.
        broker.follower_sessions.close(session.session_id)
        session.close()
        raise
    return _answer(broker, session, poll)


def _answer(broker: Broker, session: FollowerSession, poll: Poll) -> FetchResponse:
    session.tell_watermarks(poll)
    response = FetchResponse(session_id=session.session_id)
    topics: dict[Any, FetchableTopicResponse] = {}
    for wanted, data in poll.answers:
        key = wanted.topic, wanted.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(
                topic=wanted.topic, topic_id=wanted.topic_id
            )
        topic.partitions.append(data)
    response.responses = list(topics.values())
    if session.session_id == NO_SESSION:
        session.close()
    return response
