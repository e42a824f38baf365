"""Fetch requests of replicas, which `fetch` passes to this module.

A follower reads up to the log end offset, not only to the high watermark. Its fetch offset tells
the leader which records it has, which may commit records. A follower keeps one session
(`broker/replicas/follower_sessions.py`); its next request on the connection ends the wait of the
previous one. Fetches of the metadata log are not handled here, but by `quorum`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lograft.api.context import Context, DelayedResponse
from lograft.api.errors import code_of
from lograft.broker.broker import Broker
from lograft.broker.partitions.fetch_sessions import NO_SESSION, TOPIC_IDS_SINCE, RequestedPartition
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

    def missing_error(requested: RequestedPartition) -> LograftError:
        index = requested.fetch.partition
        if by_id:
            return broker.missing_id_error(requested.topic_id, index)
        return broker.missing_error(requested.topic, index)

    try:
        session = broker.follower_sessions.resume_or_open(
            request, NodeId(node_id), by_id=by_id, missing_error=missing_error, code_of=code_of
        )
    except LograftError as error:
        return FetchResponse(error_code=code_of(error), session_id=NO_SESSION)
    poll = Poll(
        NodeId(node_id),
        BrokerEpoch(NO_BROKER_EPOCH if state is None else state.replica_epoch),
        bytes_max=request.max_bytes,
    )
    session.collect(poll, now_ms=broker.clock.mono_ms())
    if _can_respond(session, request, poll):
        return _build_response(session, poll)
    return DelayedFollowerFetch(broker, session, request, poll)


def _can_respond(session: FollowerSession, request: FetchRequest, poll: Poll) -> bool:
    return (
        poll.is_urgent
        or poll.bytes_read >= request.min_bytes
        or request.max_wait_ms <= 0
        or session.has_urgent_watermarks
    )


class DelayedFollowerFetch(DelayedResponse):
    """A follower's long poll. Completes when the session has data or changes for the follower, when
    its next request arrives, or when the wait time expires."""

    __slots__ = (
        "_broker",
        "_epoch",
        "_is_over",
        "_poll",
        "_recheck",
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
        #: The session's epoch now; another epoch means that its next request has arrived.
        self._epoch = session.epoch
        self._is_over = False
        self._recheck: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, recheck: Callable[[], None]) -> None:
        self._recheck = recheck
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._request.max_wait_ms / 1000, self._on_time)
        self._session.delay(self)

    def wake(self) -> None:
        """Completes in the event loop's next iteration, so that later appends of this iteration are
        included."""
        assert self._recheck is not None
        asyncio.get_running_loop().call_soon(self._recheck)

    def _on_time(self) -> None:
        self._is_over = True
        self._broker.expirations.follower_fetches += 1
        assert self._recheck is not None
        self._recheck()

    def try_complete(self) -> EncodedResponse | DelayedReply:
        session = self._session
        # The next request of the session returns what has not been sent yet.
        if session.epoch == self._epoch and not self._is_over:
            session.collect(self._poll, now_ms=self._broker.clock.mono_ms())
            if not _can_respond(session, self._request, self._poll):
                session.delay(self)
                return self
        self._stop()
        return self.encode(_build_response(session, self._poll))

    def cancel(self) -> None:
        """Closes the session: the connection is closed, and no other one continues it."""
        self._stop()
        self._broker.follower_sessions.close(self._session.session_id)
        self._session.close()

    def _stop(self) -> None:
        self._session.remove_delayed(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _build_response(session: FollowerSession, poll: Poll) -> FetchResponse:
    session.collect_watermarks(poll)
    response = FetchResponse(session_id=session.session_id)
    topics: dict[Any, FetchableTopicResponse] = {}
    for requested, data in poll.results:
        key = requested.topic, requested.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(
                topic=requested.topic, topic_id=requested.topic_id
            )
        topic.partitions.append(data)
    response.responses = list(topics.values())
    if session.session_id == NO_SESSION:
        session.close()
    return response
