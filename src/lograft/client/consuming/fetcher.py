"""Keeps the slices of the assigned partitions filled: one fetch at a time to every broker that has
partitions with room, each a long poll on a connection of its own.

What an answer brings goes to the partition's state, unless the position has been set anew since the
question. Errors that pass are tried again after a back-off; the others are left in the state for
whoever polls.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from lograft.client.backoff import backoff_ms
from lograft.client.broker_connection import BrokerConnection
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.fetch_requests import (
    FETCH_NAMES_UNTIL,
    SinglePartitionFetch,
    fetch_request,
    last_request,
)
from lograft.client.consuming.fetch_sessions import NO_SESSION, FetchSession, Wanted
from lograft.client.consuming.reset_policy import ResetKind
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.slices import Aborted, Slice
from lograft.client.consuming.subscription import PartitionState, Subscription
from lograft.client.core import ClientCore
from lograft.client.errors import (
    RETRIABLE,
    STALE_METADATA,
    ClientError,
    OutcomeUnknown,
    broker_error,
)
from lograft.client.network import Broker
from lograft.client.types import TopicPartition
from lograft.client.work_scheduler import NO_DEADLINE_MS, WorkScheduler
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.model.seams import Address, FileSlice
from lograft.model.types import NO_NODE
from lograft.wire.apis import FETCH_KEY
from lograft.wire.messages.fetch import FetchResponse, PartitionData

LOGGER: Final = logging.getLogger(__name__)

FETCH_LANE: Final = "fetch"
#: Bytes held ready in all, in units of fetch.max.bytes.
_FETCHES_AHEAD: Final = 2
#: After an answer of so much the next question goes out before the program gets its turn, so that
#: the broker works on that while the program works on this. Of less the program hears first.
_MUCH_BYTES: Final = 32 << 10

FETCHES: Final = Counter("lograft_client_fetches_total", "Fetch requests of the consumer.")
FETCHED_BYTES: Final = Counter(
    "lograft_client_fetched_bytes_total", "Size of the record batches that the consumer received."
)
FETCH_FAILURES: Final = Counter(
    "lograft_client_fetch_failures_total", "Fetch requests of the consumer that failed."
)
BUFFERED_BYTES: Final = Gauge(
    "lograft_client_fetched_buffer_bytes", "Size of what was fetched and is not polled yet."
)


class _Question(NamedTuple):
    """What was asked of a partition, to see whether the answer is still of use."""

    state: PartitionState
    topic_id: UUID
    version: int
    offset: int
    node: int


#: By the topic's id, or its name where the broker is too old for ids, and the partition's index: as
#: an answer names them.
_Questions: TypeAlias = Mapping[tuple[UUID | str, int], _Question]


class Fetcher:
    def __init__(
        self,
        core: ClientCore[ConsumerSettings],
        subscription: Subscription,
        *,
        on_news: Callable[[], None],
        on_reset: Callable[[], None],
    ) -> None:
        """`on_news`: there is something to poll, and the program may go on in the call; `on_reset`:
        a position is to be found."""
        self._core = core
        self._settings = core.settings
        self._is_read_committed = core.settings.is_read_committed
        self._clock = core.runtime.clock
        self._subscription = subscription
        self._on_news = on_news
        self._has_news = False
        self._on_reset = on_reset
        self._scheduler = WorkScheduler(self._fetch_what_has_room, self._on_failure)
        #: Something was not asked for, because what came before it lies unread.
        self._waits_for_room = False
        self._sessions: dict[int, FetchSession] = {}
        #: Of each broker of which one partition is read: how it was asked last.
        self._lone: dict[int, SinglePartitionFetch] = {}
        self._in_flight: set[int] = set()
        self._connecting: set[int] = set()
        self._failures: dict[int, int] = {}
        self._fetches = 0
        self._fetched_bytes = 0
        self._fetch_failures = 0

    def start(self) -> None:
        self._core.metadata.on_update(self.wake)
        self.wake()

    def wake(self) -> None:
        self._scheduler.wake()

    def on_room(self) -> None:
        """A slice has been used up."""
        if self._waits_for_room:
            self._scheduler.wake()

    def collect_samples(self) -> Iterator[Sample]:
        yield FETCHES.sample(self._fetches)
        yield FETCHED_BYTES.sample(self._fetched_bytes)
        yield FETCH_FAILURES.sample(self._fetch_failures)
        yield BUFFERED_BYTES.sample(sum(state.buffered_bytes for state in self._subscription))

    def close(self) -> None:
        """Lets the brokers forget the sessions, as far as that can be done without waiting."""
        self._scheduler.stop()
        for node, session in self._sessions.items():
            link = self._core.network.ready_connection(node, FETCH_LANE)
            if session.id != NO_SESSION and link is not None:
                ended = link.send_for_future(
                    last_request(session.id), FetchResponse, timeout_ms=1_000
                )
                ended.add_done_callback(lambda done: done.cancelled() or done.exception())

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def _on_failure(self, error: BaseException) -> None:
        self._core.fail(error)
        self._on_news()

    def _fetch_what_has_room(self) -> int:
        """How long until a partition may be tried again."""
        now_ms = self._clock.mono_ms()
        wait_ms = NO_DEADLINE_MS
        self._waits_for_room = self._is_full()
        if self._waits_for_room:
            return wait_ms
        by_node: dict[int, list[PartitionState]] = {}
        for state in self._subscription:
            if state.retry_at_ms > now_ms:
                wait_ms = min(wait_ms, state.retry_at_ms - now_ms)
            elif not state.has_room():
                self._waits_for_room = True
            elif state.may_fetch(now_ms):
                node = self._node_of(state, now_ms)
                if node is not None:
                    by_node.setdefault(node, []).append(state)
        for node, states in by_node.items():
            if node not in self._in_flight:
                link = self._core.network.ready_connection(node, FETCH_LANE)
                if link is None:
                    self._connect(node)
                else:
                    self._fetch(node, link, states)
        return wait_ms

    def _is_full(self) -> bool:
        # What is paused may lie here for long; it must not keep the others from being read.
        held = sum(state.buffered_bytes for state in self._subscription if not state.is_paused)
        return held >= _FETCHES_AHEAD * max(1, self._settings.fetch_max_bytes)

    def _node_of(self, state: PartitionState, now_ms: int) -> int | None:
        """Whom to ask: the replica that the leader recommends (KIP-392), else the leader."""
        brokers = self._core.network.brokers
        if state.preferred_replica != NO_NODE:
            if state.preferred_until_ms > now_ms and state.preferred_replica in brokers:
                return state.preferred_replica
            state.preferred_replica = NO_NODE
        metadata = self._core.metadata
        known = metadata.cache.partition(*state.partition)
        if known is None or known.leader not in brokers:
            metadata.use(state.partition.topic)
            metadata.request_update()
            return None
        return known.leader

    def _connect(self, node: int) -> None:
        if node in self._connecting:
            return
        self._connecting.add(node)

        async def connect() -> None:
            try:
                await self._core.network.connect(node, FETCH_LANE)
            except ClientError as error:
                LOGGER.debug("no connection to broker %d: %s", node, error)
                self._core.metadata.request_update()
                self._forget_preference(node)
                if not error.is_retriable:
                    self._fail_all(error)
            # Not after a cancellation: the client or its loop is being closed.
            self._connecting.discard(node)
            self.wake()
            self._tell_news()

        self._core.runtime.spawn(connect(), name=f"connect to broker {node}")

    # ── one fetch ────────────────────────────────────────────────────────────────────────────

    def _fetch(self, node: int, link: BrokerConnection, states: list[PartitionState]) -> None:
        cache = self._core.metadata.cache
        wanted: dict[TopicPartition, Wanted] = {}
        asked: list[_Question] = []
        for state in states:
            topic = cache.topic(state.partition.topic)
            known = None if topic is None else topic.partition(state.partition.partition)
            if topic is None or known is None:
                continue
            offset = state.fetch_position.offset
            wanted[state.partition] = Wanted(
                topic.id, offset, known.leader_epoch, self._settings.max_partition_fetch_bytes
            )
            asked.append(_Question(state, topic.id, state.version, offset, node))
        if not wanted:
            return
        session = self._sessions.get(node)
        if session is None:
            session = self._sessions[node] = FetchSession()
        plan = session.plan(wanted)
        lone = self._lone.get(node) if plan.is_lone else None
        if lone is not None and not lone.means(link, plan):
            lone = None
        if lone is None:
            at_most = None if plan.uses_ids else FETCH_NAMES_UNTIL
            version = link.version_of(FETCH_KEY, at_most=at_most)
        else:
            version = lone.version
        by_id = version > FETCH_NAMES_UNTIL
        questions: _Questions = {
            (one.topic_id if by_id else one.state.partition[0], one.state.partition[1]): one
            for one in asked
        }
        self._in_flight.add(node)
        self._fetches += 1
        on_outcome = partial(self._on_outcome, node, session, questions)
        timeout_ms = self._settings.request_timeout_ms
        if lone is not None:
            link.send_packed(
                lone.parts,
                offset,
                FetchResponse,
                on_outcome,
                version=version,
                timeout_ms=timeout_ms,
            )
            return
        request = fetch_request(self._settings, plan)
        link.send(request, FetchResponse, on_outcome, version=version, timeout_ms=timeout_ms)
        if plan.is_lone:
            self._lone[node] = SinglePartitionFetch(self._settings, link, plan, version)

    def _on_outcome(
        self,
        node: int,
        session: FetchSession,
        questions: _Questions,
        outcome: FetchResponse | OutcomeUnknown,
    ) -> None:
        self._in_flight.discard(node)
        if isinstance(outcome, OutcomeUnknown):
            session.lost()
            self._failed(node, questions, outcome)
        elif outcome.error_code:
            session.refused(outcome.error_code)
            self._failed(node, questions, broker_error(outcome.error_code, "fetch"))
        else:
            session.answered(outcome.session_id)
            self._failures.pop(node, None)
            before = self._fetched_bytes
            self._take(questions, outcome)
            if self._fetched_bytes - before >= _MUCH_BYTES:
                self._scheduler.run_now()
                self._tell_news()
                return
        self.wake()
        self._tell_news()

    def _tell_news(self) -> None:
        """The last that is done with an answer."""
        if self._has_news:
            self._has_news = False
            self._on_news()

    def _failed(self, node: int, questions: _Questions, error: ClientError) -> None:
        self._fetch_failures += 1
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        LOGGER.debug("a fetch from broker %d failed: %s", node, error)
        self._forget_preference(node)
        self._core.metadata.request_update()
        if not error.is_retriable:
            self._fail_all(error)
            return
        # A session that the broker has dropped is no reason to wait, the first time.
        if failures > 1 or not _is_about_the_session(error):
            for question in questions.values():
                self._back_off(question.state, failures)

    def _take(self, questions: _Questions, answer: FetchResponse) -> None:
        for topic in answer.responses:
            key = topic.topic or topic.topic_id
            for told in topic.partitions:
                question = questions.get((key, told.partition_index))
                if question is not None and self._is_of_use(question):
                    self._take_partition(question, told, answer)

    def _is_of_use(self, question: _Question) -> bool:
        state = question.state
        return question.version == state.version and question.offset == state.fetch_position.offset

    def _take_partition(
        self, question: _Question, told: PartitionData, answer: FetchResponse
    ) -> None:
        state = question.state
        if told.error_code:
            self._on_error(question, told, answer)
            return
        state.high_watermark = told.high_watermark
        state.last_stable_offset = told.last_stable_offset
        state.log_start_offset = told.log_start_offset
        if told.preferred_read_replica >= 0:
            state.preferred_replica = told.preferred_read_replica
            state.preferred_until_ms = self._clock.mono_ms() + self._settings.metadata_max_age_ms
        data = told.records
        if not data:
            return
        assert not isinstance(data, FileSlice)
        aborted = None
        if self._is_read_committed:
            aborted = [
                Aborted(one.producer_id, one.first_offset)
                for one in told.aborted_transactions or ()
            ]
        topic, partition = state.partition
        try:
            fetched = CompletedFetch(Slice(topic, partition, question.offset, data, aborted))
        except LograftError as error:
            self._fail(state, error)
            return
        if fetched.next_offset == question.offset:
            self._fail(state, _no_progress(state.partition, question.offset, len(data)))
            return
        self._fetched_bytes += fetched.size_bytes
        state.fetched(fetched)
        self._has_news = True

    # ── errors ───────────────────────────────────────────────────────────────────────────────

    def _on_error(self, question: _Question, told: PartitionData, answer: FetchResponse) -> None:
        state, code = question.state, told.error_code
        error = broker_error(code, f"{state.partition} at offset {question.offset}")
        was_preferred = question.node == state.preferred_replica
        state.preferred_replica = NO_NODE
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not was_preferred:
                self._on_out_of_range(state, error)
            return
        leader = told.current_leader
        if leader is not None and leader.leader_id >= 0:
            topic, partition = state.partition
            brokers = [
                Broker(one.node_id, Address(one.host, one.port), one.rack)
                for one in answer.node_endpoints
            ]
            self._core.metadata.update_leader(
                topic, partition, leader.leader_id, leader.leader_epoch, brokers
            )
        elif code in STALE_METADATA:
            self._core.metadata.request_update()
        if code in RETRIABLE or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            LOGGER.debug("fetch failed and is tried again: %s", error)
            self._back_off(state, 1)
        else:
            self._fail(state, error)

    def _on_out_of_range(self, state: PartitionState, error: ClientError) -> None:
        if state.slices:
            # The program has not seen what comes before; it is asked again after that.
            self._back_off(state, 1)
            return
        policy = self._settings.reset_policy
        if policy.kind is ResetKind.NONE:
            self._fail(state, error)
            return
        LOGGER.warning("%s; its position is reset to %s", error, self._settings.auto_offset_reset)
        state.request_reset(policy)
        self._on_reset()

    def _fail(self, state: PartitionState, error: LograftError) -> None:
        state.error = error
        self._has_news = True

    def _fail_all(self, error: ClientError) -> None:
        for state in self._subscription:
            state.error = error
        self._has_news = True

    def _back_off(self, state: PartitionState, failures: int) -> None:
        settings = self._settings
        state.retry_at_ms = self._clock.mono_ms() + backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            failures,
            self._core.runtime.randomness,
        )

    def _forget_preference(self, node: int) -> None:
        for state in self._subscription:
            if state.preferred_replica == node:
                state.preferred_replica = NO_NODE


def _is_about_the_session(error: ClientError) -> bool:
    return getattr(error, "code", None) in (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )


def _no_progress(partition: TopicPartition, offset: int, size: int) -> ClientError:
    return ClientError(
        f"{partition} at offset {offset}: the broker gave {size} bytes without a whole batch;"
        " raise max.partition.fetch.bytes and fetch.max.bytes"
    )
