"""Fetch by replicas: the other half of `fetch`, which sends them here.

A follower reads up to the end of the log, not to the high watermark; its fetch tells the leader
how far it has come, which may commit records. It goes on in the same session all the time
(`broker/replicas/follower_sessions.py`), and its next request on the connection ends the wait of
the one before. A fetch of the cluster's metadata is not one of these: that is the quorum's.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lograft.api.context import Context, DelayedResponse
from lograft.api.errors import code_of
from lograft.broker.broker import Broker
from lograft.broker.partitions.fetch_sessions import NO_SESSION, TOPIC_IDS_SINCE, Wanted
from lograft.broker.replicas.follower_sessions import FollowerSession, Poll
from lograft.model.errors import LograftError
from lograft.model.exchange import DelayedReply, EncodedResponse
from lograft.model.types import BrokerEpoch, NodeId
from lograft.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse

NO_BROKER_EPOCH: Final = -1


def handle(
    context: Context, request: FetchRequest, node_id: int
) -> FetchResponse | DelayedResponse:
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
        return _answer(session, poll)
    return ParkedPoll(broker, session, request, poll)


def _may_answer(session: FollowerSession, request: FetchRequest, poll: Poll) -> bool:
    return (
        poll.is_urgent
        or poll.bytes_read >= request.min_bytes
        or request.max_wait_ms <= 0
        or session.tells_at_once
    )


class ParkedPoll(DelayedResponse):
    """Stands in its session until that has something to say, the next request of the session
    comes, or its time is over."""

    __slots__ = (
        "_broker",
        "_epoch",
        "_is_over",
        "_look",
        "_poll",
        "_request",
        "_session",
        "_timer",
    )

    allows_pipelining = True

    def __init__(
        self, broker: Broker, session: FollowerSession, request: FetchRequest, poll: Poll
    ) -> None:
        self._broker = broker
        self._session = session
        self._request = request
        self._poll = poll
        #: Of the session now; another one means that its next request has come.
        self._epoch = session.epoch
        self._is_over = False
        self._look: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, look: Callable[[], None]) -> None:
        self._look = look
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._request.max_wait_ms / 1000, self._on_time)
        self._session.park(self)

    def wake(self) -> None:
        """In the next turn: whatever else is appended in this one goes with the same answer."""
        assert self._look is not None
        asyncio.get_running_loop().call_soon(self._look)

    def _on_time(self) -> None:
        self._is_over = True
        assert self._look is not None
        self._look()

    def answer(self) -> EncodedResponse | DelayedReply:
        session = self._session
        # The next request of the session takes over what there is to say.
        if session.epoch == self._epoch and not self._is_over:
            session.look(self._poll, now_ms=self._broker.clock.mono_ms())
            if not _may_answer(session, self._request, self._poll):
                session.park(self)
                return self
        self._stop()
        return self.frame(_answer(session, self._poll))

    def cancel(self) -> None:
        """The connection is gone, and with it whoever would go on with the session."""
        self._stop()
        self._broker.follower_sessions.close(self._session.session_id)
        self._session.close()

    def _stop(self) -> None:
        self._session.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _answer(session: FollowerSession, poll: Poll) -> FetchResponse:
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
