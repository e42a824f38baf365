"""Fetches the assigned partitions ahead of the application: sends one Fetch request at a time to
each broker, for the partitions whose buffers are not full, as a long poll on a separate connection.

The result for a partition is added to its state, unless its position has been set since the request
was sent. Retriable errors are retried after a backoff; other errors are stored in the state, and
the next poll raises them.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from lograft.client.backoff import backoff_ms
from lograft.client.broker_connection import BrokerConnection
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.fetch_metrics import FetchMetrics
from lograft.client.consuming.fetch_requests import (
    LAST_VERSION_WITH_TOPIC_NAMES,
    SinglePartitionFetch,
    build_closing_request,
    build_fetch_request,
)
from lograft.client.consuming.fetch_sessions import NO_SESSION, FetchSession, PartitionFetch
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
from lograft.model.seams import Address, FileSlice
from lograft.model.types import NO_NODE
from lograft.wire.apis import FETCH_KEY
from lograft.wire.messages.fetch import FetchResponse, PartitionData

LOGGER: Final = logging.getLogger(__name__)

FETCH_LANE: Final = "fetch"
#: Limit of the buffered bytes of all partitions, in units of fetch.max.bytes.
_FETCHES_AHEAD: Final = 2
#: After a response of at least this size the next request is sent before the application resumes,
#: so that broker and application work in parallel. After a smaller one the application resumes
#: first.
_LARGE_RESPONSE_BYTES: Final = 32 << 10


class _RequestedPartition(NamedTuple):
    """A partition in a request, to check whether the response still applies to it."""

    state: PartitionState
    topic_id: UUID
    version: int
    offset: int
    node: int


#: By topic and partition index, as the response identifies them: topic ids, or names if the broker
#: does not support ids.
_RequestedPartitions: TypeAlias = Mapping[tuple[UUID | str, int], _RequestedPartition]


class Fetcher:
    def __init__(
        self,
        core: ClientCore[ConsumerSettings],
        subscription: Subscription,
        metrics: FetchMetrics,
        *,
        on_fetched: Callable[[], None],
        on_reset: Callable[[], None],
    ) -> None:
        """`on_fetched`: there are records or an error to poll; the application may resume inside
        the call. `on_reset`: a partition needs a new position."""
        self._core = core
        self._settings = core.settings
        self._is_read_committed = core.settings.is_read_committed
        self._clock = core.runtime.clock
        self._subscription = subscription
        self._on_fetched = on_fetched
        self._has_fetched = False
        self._on_reset = on_reset
        self._scheduler = WorkScheduler(self._send_fetches, self._on_failure)
        #: Some partitions were not fetched, because their buffers or the shared limit are full.
        self._is_limited = False
        self._sessions: dict[int, FetchSession] = {}
        #: The last sessionless request to each broker.
        self._single_fetches: dict[int, SinglePartitionFetch] = {}
        self._in_flight: set[int] = set()
        self._connecting: set[int] = set()
        self._failures: dict[int, int] = {}
        self._metrics = metrics
        self._fetched_bytes = 0
        self._fetched_records = 0

    def start(self) -> None:
        self._core.metadata.on_update(self.wake)
        self.wake()

    def wake(self) -> None:
        self._scheduler.wake()

    def on_slice_consumed(self) -> None:
        if self._is_limited:
            self._scheduler.wake()

    def close(self) -> None:
        """Closes the fetch sessions where that is possible without waiting."""
        self._scheduler.stop()
        for node, session in self._sessions.items():
            connection = self._core.network.ready_connection(node, FETCH_LANE)
            if session.id != NO_SESSION and connection is not None:
                closed = connection.send_for_future(
                    build_closing_request(session.id), FetchResponse, timeout_ms=1_000
                )
                closed.add_done_callback(lambda done: done.cancelled() or done.exception())

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def _on_failure(self, error: BaseException) -> None:
        self._core.fail(error)
        self._on_fetched()

    def _send_fetches(self) -> int:
        """Returns how long to wait until a partition can be retried."""
        now_ms = self._clock.mono_ms()
        wait_ms = NO_DEADLINE_MS
        self._is_limited = self._is_full()
        if self._is_limited:
            return wait_ms
        by_node: dict[int, list[PartitionState]] = {}
        for state in self._subscription:
            if state.retry_at_ms > now_ms:
                wait_ms = min(wait_ms, state.retry_at_ms - now_ms)
            elif not state.can_buffer_slice():
                self._is_limited = True
            elif state.can_fetch(now_ms):
                node = self._node_of(state, now_ms)
                if node is not None:
                    by_node.setdefault(node, []).append(state)
        for node, states in by_node.items():
            if node not in self._in_flight:
                connection = self._core.network.ready_connection(node, FETCH_LANE)
                if connection is None:
                    self._connect(node)
                else:
                    self._fetch(node, connection, states)
        return wait_ms

    def _is_full(self) -> bool:
        # Paused partitions do not count: their buffers may stay full for long, and must not block
        # the other partitions.
        buffered = sum(state.buffered_bytes for state in self._subscription if not state.is_paused)
        return buffered >= _FETCHES_AHEAD * max(1, self._settings.fetch_max_bytes)

    def _node_of(self, state: PartitionState, now_ms: int) -> int | None:
        """Returns the preferred read replica (KIP-392) or the leader; None: there is neither."""
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
                LOGGER.debug("could not connect to broker %d: %s", node, error)
                self._core.metadata.request_update()
                self._forget_preferred(node)
                if not error.is_retriable:
                    self._fail_all(error)
            # Not in a finally clause: after a cancellation the client is being closed.
            self._connecting.discard(node)
            self.wake()
            self._notify()

        self._core.runtime.spawn(connect(), name=f"connect to broker {node}")

    # ── one fetch ────────────────────────────────────────────────────────────────────────────

    def _fetch(self, node: int, connection: BrokerConnection, states: list[PartitionState]) -> None:
        cache = self._core.metadata.cache
        partitions: dict[TopicPartition, PartitionFetch] = {}
        entries: list[_RequestedPartition] = []
        for state in states:
            topic = cache.topic(state.partition.topic)
            known = None if topic is None else topic.partition(state.partition.partition)
            if topic is None or known is None:
                continue
            offset = state.fetch_position.offset
            partitions[state.partition] = PartitionFetch(
                topic.id, offset, known.leader_epoch, self._settings.max_partition_fetch_bytes
            )
            entries.append(_RequestedPartition(state, topic.id, state.version, offset, node))
        if not partitions:
            return
        session = self._sessions.get(node)
        if session is None:
            session = self._sessions[node] = FetchSession()
        plan = session.plan(partitions)
        single = self._single_fetches.get(node) if plan.is_sessionless else None
        if single is not None and not single.matches(connection, plan):
            single = None
        if single is None:
            at_most = None if plan.uses_ids else LAST_VERSION_WITH_TOPIC_NAMES
            version = connection.version_of(FETCH_KEY, at_most=at_most)
        else:
            version = single.version
        by_id = version > LAST_VERSION_WITH_TOPIC_NAMES
        requested: _RequestedPartitions = {
            (
                entry.topic_id if by_id else entry.state.partition.topic,
                entry.state.partition.partition,
            ): entry
            for entry in entries
        }
        self._in_flight.add(node)
        self._metrics.on_fetch()
        on_outcome = partial(self._handle_outcome, node, session, requested, self._clock.mono_ms())
        timeout_ms = self._settings.request_timeout_ms
        if single is not None:
            connection.send_packed(
                single.encode,
                offset,
                FetchResponse,
                on_outcome,
                version=version,
                timeout_ms=timeout_ms,
            )
            return
        request = build_fetch_request(self._settings, plan)
        connection.send(request, FetchResponse, on_outcome, version=version, timeout_ms=timeout_ms)
        if plan.is_sessionless:
            self._single_fetches[node] = SinglePartitionFetch(
                self._settings, connection, plan, version
            )

    def _handle_outcome(
        self,
        node: int,
        session: FetchSession,
        requested: _RequestedPartitions,
        sent_ms: int,
        outcome: FetchResponse | OutcomeUnknown,
    ) -> None:
        self._in_flight.discard(node)
        if isinstance(outcome, OutcomeUnknown):
            session.handle_lost_response()
            self._handle_failure(node, requested, outcome)
        elif outcome.error_code:
            session.handle_error(outcome.error_code)
            self._handle_failure(node, requested, broker_error(outcome.error_code, "fetch"))
        else:
            session.handle_response(outcome.session_id)
            self._failures.pop(node, None)
            bytes_before, records_before = self._fetched_bytes, self._fetched_records
            self._handle_response(requested, outcome)
            size_bytes = self._fetched_bytes - bytes_before
            self._metrics.on_response(
                latency_ms=self._clock.mono_ms() - sent_ms,
                throttle_ms=outcome.throttle_time_ms,
                size_bytes=size_bytes,
                records=self._fetched_records - records_before,
            )
            if size_bytes >= _LARGE_RESPONSE_BYTES:
                self._scheduler.run_now()
                self._notify()
                return
        self.wake()
        self._notify()

    def _notify(self) -> None:
        """Called last, because the application may resume inside this call."""
        if self._has_fetched:
            self._has_fetched = False
            self._on_fetched()

    def _handle_failure(
        self, node: int, requested: _RequestedPartitions, error: ClientError
    ) -> None:
        self._metrics.on_failure()
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        LOGGER.debug("fetch from broker %d failed: %s", node, error)
        self._forget_preferred(node)
        self._core.metadata.request_update()
        if not error.is_retriable:
            self._fail_all(error)
            return
        # The first error about a session is retried at once: the broker has evicted it.
        if failures > 1 or not _is_session_error(error):
            for entry in requested.values():
                self._back_off(entry.state, failures)

    def _handle_response(self, requested: _RequestedPartitions, response: FetchResponse) -> None:
        for topic in response.responses:
            topic_key = topic.topic or topic.topic_id
            bytes_before, records_before, name = self._fetched_bytes, self._fetched_records, ""
            for data in topic.partitions:
                entry = requested.get((topic_key, data.partition_index))
                if entry is not None and self._is_current(entry):
                    self._handle_partition(entry, data, response)
                    name = entry.state.partition.topic
            if self._fetched_bytes > bytes_before:
                self._metrics.on_topic_fetched(
                    name,
                    size_bytes=self._fetched_bytes - bytes_before,
                    records=self._fetched_records - records_before,
                )

    def _is_current(self, entry: _RequestedPartition) -> bool:
        state = entry.state
        return entry.version == state.version and entry.offset == state.fetch_position.offset

    def _handle_partition(
        self, entry: _RequestedPartition, data: PartitionData, response: FetchResponse
    ) -> None:
        state = entry.state
        if data.error_code:
            self._handle_error(entry, data, response)
            return
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until_ms = self._clock.mono_ms() + self._settings.metadata_max_age_ms
        records = data.records
        if not records:
            return
        assert not isinstance(records, FileSlice)
        aborted = None
        if self._is_read_committed:
            aborted = [
                Aborted(transaction.producer_id, transaction.first_offset)
                for transaction in data.aborted_transactions or ()
            ]
        topic, partition = state.partition
        try:
            fetched = CompletedFetch(Slice(topic, partition, entry.offset, records, aborted))
        except LograftError as error:
            self._fail(state, error)
            return
        if fetched.next_offset == entry.offset:
            self._fail(state, _no_progress_error(state.partition, entry.offset, len(records)))
            return
        self._fetched_bytes += fetched.size_bytes
        self._fetched_records += fetched.record_count
        state.add_slice(fetched)
        self._has_fetched = True

    # ── errors ───────────────────────────────────────────────────────────────────────────────

    def _handle_error(
        self, entry: _RequestedPartition, data: PartitionData, response: FetchResponse
    ) -> None:
        state, code = entry.state, data.error_code
        error = broker_error(code, f"{state.partition} at offset {entry.offset}")
        was_preferred = entry.node == state.preferred_replica
        state.preferred_replica = NO_NODE
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not was_preferred:
                self._handle_out_of_range(state, error)
            return
        leader = data.current_leader
        if leader is not None and leader.leader_id >= 0:
            topic, partition = state.partition
            brokers = [
                Broker(endpoint.node_id, Address(endpoint.host, endpoint.port), endpoint.rack)
                for endpoint in response.node_endpoints
            ]
            self._core.metadata.update_leader(
                topic, partition, leader.leader_id, leader.leader_epoch, brokers
            )
        elif code in STALE_METADATA:
            self._core.metadata.request_update()
        if code in RETRIABLE or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            LOGGER.debug("retrying a failed fetch: %s", error)
            self._back_off(state, 1)
        else:
            self._fail(state, error)

    def _handle_out_of_range(self, state: PartitionState, error: ClientError) -> None:
        if state.slices:
            # The application has to consume the buffered records first.
            self._back_off(state, 1)
            return
        policy = self._settings.reset_policy
        if policy.kind is ResetKind.NONE:
            self._fail(state, error)
            return
        LOGGER.warning("%s; resetting the position to %s", error, self._settings.auto_offset_reset)
        state.request_reset(policy)
        self._on_reset()

    def _fail(self, state: PartitionState, error: LograftError) -> None:
        state.error = error
        self._has_fetched = True

    def _fail_all(self, error: ClientError) -> None:
        for state in self._subscription:
            state.error = error
        self._has_fetched = True

    def _back_off(self, state: PartitionState, failures: int) -> None:
        settings = self._settings
        state.retry_at_ms = self._clock.mono_ms() + backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            failures,
            self._core.runtime.randomness,
        )

    def _forget_preferred(self, node: int) -> None:
        for state in self._subscription:
            if state.preferred_replica == node:
                state.preferred_replica = NO_NODE


def _is_session_error(error: ClientError) -> bool:
    return getattr(error, "code", None) in (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )


def _no_progress_error(partition: TopicPartition, offset: int, size: int) -> ClientError:
    return ClientError(
        f"{partition} at offset {offset}: the broker returned {size} bytes without a complete"
        " batch; increase max.partition.fetch.bytes and fetch.max.bytes"
    )
