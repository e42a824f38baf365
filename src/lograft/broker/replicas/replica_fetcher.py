"""Fetching from one leader node: one stream for all partitions that follow it.

The stream is a long poll in an incremental session (KIP-227): requests contain only changes and
responses only updates, so that idle partitions cost nothing. If a partition has a new fetch while a
poll is delayed at the leader (its log was flushed or truncated, or it has just become a follower),
the next request is sent at once, and the leader completes the delayed one (`follower_sessions`).

A fetch stays in the session: a partition without updates is not in the response and keeps waiting.

Where records count only on disk, a fetch offset promises that everything below it is there, so a
partition with a busy disk sends no fetch. It stays in the session, and if all partitions of the
stream wait for their disks, empty polls continue: to the leader the follower is slow, not dead.

There is no task: a response is handled within the read that received it, and if nothing must be
flushed, the next request is sent in the same iteration of the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple
from uuid import UUID

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.peers import Peers
from lograft.broker.partitions.fetch_sessions import EPOCH_INITIAL, EPOCH_MAX, NO_SESSION
from lograft.broker.partitions.replication_throttle import PAUSE_MS, ReplicationThrottle
from lograft.broker.replicas.follower_partition import Bounds, FollowerPartition
from lograft.broker.replicas.suspect_brokers import SuspectBrokers
from lograft.model.errors import ErrorCode
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.model.seams import Address, Clock, FileSlice, Spawn
from lograft.model.types import NO_OFFSET, BrokerEpoch, NodeId, Offset
from lograft.replication.types import FollowerFetch
from lograft.wire.apis import Versions
from lograft.wire.message import Records
from lograft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LOGGER: Final = logging.getLogger(__name__)
FETCH_VERSIONS: Final = Versions(17, 18)
LIST_OFFSETS_VERSIONS: Final = Versions(4, 7)
FETCH_LANE: Final = "fetch"
#: Requests in flight: a delayed poll, and the one that completes it.
IN_FLIGHT_MAX: Final = 2
#: Delays before each attempt to connect to a leader whose connection broke.
PROBES_MS: Final = (0, 20)
#: Timeout of an attempt; without a refusal the process may still be running.
PROBE_MS_MAX: Final = 2_000
LATEST: Final = -1
EARLIEST: Final = -2

Key = tuple[UUID, int]

FETCHES: Final = Counter(
    "lograft_replica_fetches_total",
    "Fetch requests that this broker sent as a follower.",
)
PENDING: Final = Gauge(
    "lograft_replica_fetches_pending",
    "Partitions that this broker follows and whose fetch has no response from the leader yet.",
)


class SentFetch(NamedTuple):
    """A fetch, and the number of the request with it: only responses to that request or later ones
    belong to it."""

    fetch: FollowerFetch
    number: int


class FetcherContext(NamedTuple):
    """Services shared by all fetch streams of a broker."""

    me: NodeId
    clock: Clock
    spawn: Spawn
    peers: Peers
    metadata: ClusterMetadata
    broker_epoch: Callable[[], BrokerEpoch]
    #: Returns the inter-broker address of a broker; None if the image has none.
    address_of: Callable[[NodeId], Address | None]
    throttle: ReplicationThrottle
    #: Called for brokers whose process has terminated: a connection was refused.
    on_rejected: Callable[[NodeId], None]
    suspect_brokers: SuspectBrokers


class ReplicaFetcher:
    """The fetch stream of one leader (a `follower_partition.Stream`)."""

    def __init__(self, leader: NodeId, context: FetcherContext) -> None:
        self.leader = leader
        self._context = context
        self.followed: dict[Key, FollowerPartition] = {}
        #: Partitions to check for a new fetch before the next request.
        self._due: dict[Key, None] = {}
        #: Retries after errors: (time, sequence number, partition).
        self._retries: list[tuple[int, int, Key]] = []
        #: Fetches without a response.
        self._awaiting: dict[Key, SentFetch] = {}
        #: Fetches in the session at the leader; None if one got a response and must be sent again.
        self._session: dict[Key, SentFetch | None] = {}
        #: Partitions with a response, and the number of its request, that cannot send a new fetch
        #: until their disk is done. They stay in the session.
        self._busy: dict[Key, tuple[FollowerPartition, int]] = {}
        #: Time of the last request.
        self._sent_ms = 0
        self._session_id = NO_SESSION
        self._session_epoch = EPOCH_INITIAL
        #: Responses of an earlier session are ignored.
        self._generation = 0
        self._numbers = 0
        self._in_flight = 0
        #: A check is scheduled for the next iteration of the event loop.
        self._is_check_scheduled = False
        self._retry_timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._failures = 0
        #: Number and time of the newest request with a response: a partition in its session that is
        #: not in the response has no update.
        self._responded = (0, -1)

    # Partitions of the stream.

    def follow(self, followed: FollowerPartition) -> None:
        self.followed[followed.key] = followed
        self.consider(followed)

    def unfollow(self, followed: FollowerPartition) -> None:
        followed.is_over = True
        if self.followed.get(followed.key) is followed:
            del self.followed[followed.key]
            self._awaiting.pop(followed.key, None)
            self._busy.pop(followed.key, None)
            if followed.key in self._session:
                # The leader may have sent a response that will be ignored.
                self._session[followed.key] = None
            self._due[followed.key] = None
            self._schedule_check()

    def consider(self, followed: FollowerPartition) -> None:
        if self.followed.get(followed.key) is followed and followed.key not in self._awaiting:
            self._due[followed.key] = None
            self._schedule_check()

    def fail(self, error: Exception) -> None:
        self.stop()
        self._context.spawn(_raise(error), name=f"fetch from {self.leader}")

    def stop(self) -> None:
        """Stops fetching; pending responses are ignored."""
        self._is_stopped = True
        self._generation += 1
        if self._retry_timer is not None:
            self._retry_timer.cancel()

    # The stream.

    def _schedule_check(self) -> None:
        """Schedules a check, so that fetches of this iteration of the loop share one request."""
        if not self._is_check_scheduled:
            self._is_check_scheduled = True
            asyncio.get_running_loop().call_soon(self._check)

    def _check(self) -> None:
        """Sends due requests and sets the timer for the next check."""
        self._is_check_scheduled = False
        if self._is_stopped:
            return
        now_ms = self._context.clock.mono_ms()
        request = self._next_request(now_ms)
        while request is not None:
            self._send(request)
            request = self._next_request(now_ms)
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        due_ms = self._next_check_ms()
        if due_ms is not None:
            wait_ms = max(1, due_ms - now_ms)
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(wait_ms / 1000, self._check)

    def _next_check_ms(self) -> int | None:
        """Returns the time of the next check without an event; None if none is needed."""
        due_ms = self._retries[0][0] if self._retries else None
        if self._busy and not self._in_flight and self._session_id != NO_SESSION:
            due_ms = self._keep_alive_ms if due_ms is None else min(due_ms, self._keep_alive_ms)
        return due_ms

    @property
    def _keep_alive_ms(self) -> int:
        """Time at which the next poll is due to keep the session alive. Most flushes take less."""
        return self._sent_ms + self._context.metadata.config.partition_raft_fetch_timeout_ms // 4

    def _next_request(self, now_ms: int) -> FetchRequest | None:
        """Returns the next request; None if none is due or a request in flight must complete
        first."""
        if self._in_flight and (self._in_flight >= IN_FLIGHT_MAX or self._session_id == NO_SESSION):
            return None
        while self._retries and self._retries[0][0] <= now_ms:
            self._due[heappop(self._retries)[2]] = None
        changed, forgotten = self._collect(now_ms)
        keeps_alive = (
            bool(self._busy) and self._session_id != NO_SESSION and now_ms >= self._keep_alive_ms
        )
        if not (self._awaiting or keeps_alive) or (self._in_flight and not changed):
            # Not urgent: removals from the session are sent with the next request.
            self._due |= dict.fromkeys(forgotten)
            return None
        for key in forgotten:
            del self._session[key]
        if self._session_id == NO_SESSION:
            changed = {key: sent.fetch for key, sent in self._awaiting.items()}
            forgotten = []
        return self._request(changed, forgotten)

    def _collect(self, now_ms: int) -> tuple[dict[Key, FollowerFetch], list[Key]]:
        """Returns the changes for the next request: new fetches, and removals from the session."""
        due, self._due = self._due, {}
        changed: dict[Key, FollowerFetch] = {}
        forgotten: list[Key] = []
        for key in due:
            if key in self._awaiting:
                continue
            followed = self.followed.get(key)
            if followed is None:
                fetch = None
            elif followed.is_throttled and self._context.throttle.is_exceeded(now_ms=now_ms):
                fetch = None
                heappush(self._retries, (now_ms + PAUSE_MS, len(self._retries), key))
            else:
                fetch = followed.next_fetch(now_ms)
            if fetch is None and followed is not None and self._stays_busy(key, followed):
                continue
            self._busy.pop(key, None)
            known = self._session.get(key)
            if fetch is None:
                if key in self._session:
                    forgotten.append(key)
                if followed is not None and followed.retry_at_ms > now_ms:
                    heappush(self._retries, (followed.retry_at_ms, len(self._retries), key))
            elif known is not None and known.fetch == fetch:
                self._awaiting[key] = SentFetch(fetch, known.number)
            else:
                changed[key] = fetch
                self._awaiting[key] = self._session[key] = SentFetch(fetch, self._numbers + 1)
        return changed, forgotten

    def _stays_busy(self, key: Key, followed: FollowerPartition) -> bool:
        busy = self._busy.get(key)
        return busy is not None and busy[0] is followed and followed.is_disk_busy

    def _request(self, changed: dict[Key, FollowerFetch], forgotten: list[Key]) -> FetchRequest:
        context = self._context
        config = context.metadata.config
        self._numbers += 1
        topics: dict[UUID, FetchTopic] = {}
        for (topic_id, index), fetch in changed.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=fetch.last_fetched_epoch,
                    log_start_offset=fetch.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                    high_watermark=self.followed[topic_id, index].role.high_watermark,
                    replica_directory_id=fetch.directory_id,
                    raft_life=fetch.life,
                    moved_to_directory_id=fetch.moved_to,
                )
            )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=context.me, replica_epoch=context.broker_epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=_group_by_topic(forgotten),
        )
        if self._session_id != NO_SESSION:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        return request

    def _send(self, request: FetchRequest) -> None:
        context = self._context
        exchange = Exchange(self, self._generation, self._numbers)
        address = context.address_of(self.leader)
        self._in_flight += 1
        self._sent_ms = context.clock.mono_ms()
        if address is None:
            error = PeerLost(f"broker {self.leader} has no inter-broker address")
            asyncio.get_running_loop().call_soon(exchange.on_failed, error)
            return
        config = context.metadata.config
        context.peers.send(
            address,
            request,
            FETCH_VERSIONS,
            exchange,
            timeout_ms=config.replica_socket_timeout_ms,
            lane=FETCH_LANE,
            listener=config.inter_broker_listener_name,
        )

    def on_response(self, response: FetchResponse, exchange: "Exchange") -> None:
        self._in_flight -= 1
        if exchange.generation == self._generation:
            self._on_response(response, exchange.number)
        self._check()

    def on_failed(self, error: PeerUnreachable | PeerLost, exchange: "Exchange") -> None:
        self._in_flight -= 1
        if exchange.generation == self._generation:
            self._on_failed(error)
            address = self._context.address_of(self.leader)
            if isinstance(error, PeerLost) and address is not None:
                # In parallel to the stream: the next request does not wait for it.
                self._context.spawn(self._probe(address), name=f"probe broker {self.leader}")
        self._schedule_check()

    def _on_response(self, response: FetchResponse, number: int) -> None:
        """Handles a response, synchronously, since its records are valid only during the call."""
        now_ms = self._context.clock.mono_ms()
        if response.error_code:
            LOGGER.info(
                "broker %d closed the fetch session: error %d", self.leader, response.error_code
            )
            self._end_session()
            return
        if self._failures:
            self._failures = 0
            self._context.suspect_brokers.on_contact(self.leader)
        self._responded = max(self._responded, (number, now_ms))
        if self._session_id == NO_SESSION:
            # A leader that opens no session gets full fetches.
            self._session_id = response.session_id
            self._session_epoch = 1 if self._session_id != NO_SESSION else EPOCH_INITIAL
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                known = self._session.get(key)
                if known is not None and known.number <= number and _requires_new_fetch(data):
                    self._session[key] = None
                sent = self._awaiting.get(key)
                if sent is None or sent.number > number:
                    if data.error_code and key in self._busy:
                        # It no longer leads this partition, so polls prove nothing about it.
                        del self._busy[key]
                        self._due[key] = None
                    continue
                del self._awaiting[key]
                self._due[key] = None
                followed = self.followed[key]
                if not data.error_code:
                    self._busy[key] = (followed, number)
                if data.records and followed.is_throttled:
                    self._context.throttle.record(_size(data.records), now_ms=now_ms)
                followed.on_response(sent.fetch, data, now_ms=now_ms)

    def _on_failed(self, error: PeerUnreachable | PeerLost) -> None:
        """The outcome is unknown: all fetches are sent again, after a backoff."""
        now_ms = self._context.clock.mono_ms()
        self._failures += 1
        if self._failures == 1:
            LOGGER.warning("could not fetch from broker %d, retrying: %s", self.leader, error)
        awaiting, self._awaiting = self._awaiting, {}
        self._end_session()
        for key, sent in awaiting.items():
            self.followed[key].on_request_failed(sent.fetch, now_ms=now_ms)
            self._due[key] = None
        if isinstance(error, PeerUnreachable) and error.refused:
            self._context.on_rejected(self.leader)

    async def _probe(self, address: Address) -> None:
        """Checks whether the process has terminated after its connection broke. Its listener may be
        closed a moment later than its connections, so a successful attempt is repeated."""
        context, config = self._context, self._context.metadata.config
        context.suspect_brokers.on_lost(self.leader)
        try:
            for pause_ms in PROBES_MS:
                await asyncio.sleep(pause_ms / 1000)
                await context.peers.connect(
                    address,
                    timeout_ms=min(PROBE_MS_MAX, config.replica_socket_timeout_ms),
                    lane=FETCH_LANE,
                    listener=config.inter_broker_listener_name,
                )
        except PeerUnreachable as error:
            if error.refused:
                context.on_rejected(self.leader)
        else:
            context.suspect_brokers.on_contact(self.leader)

    def _end_session(self) -> None:
        """Discards the session. Pending fetches stay pending, and are in the next, full request."""
        self._generation += 1
        self._busy.clear()
        self._session = {**self._awaiting}
        self._session_id = NO_SESSION
        self._session_epoch = EPOCH_INITIAL

    def last_contact_ms(self, followed: FollowerPartition) -> int:
        """Returns the time of the last response without an update for this partition, while its
        fetch or its disk was pending; -1 if there was none."""
        sent = self._awaiting.get(followed.key)
        number, when_ms = self._responded
        if sent is not None:
            return when_ms if sent.number <= number else -1
        busy = self._busy.get(followed.key)
        return when_ms if busy is not None and busy[0] is followed and busy[1] < number else -1

    # Out of range.

    async def fetch_bounds(self, followed: FollowerPartition) -> Bounds:
        """Returns the leader's log start and log end, from ListOffsets."""
        found = []
        for timestamp in (LATEST, EARLIEST):
            error, offset = await self._list_offset(followed, timestamp)
            if error is not ErrorCode.NONE:
                return Bounds(error, NO_OFFSET, NO_OFFSET)
            found.append(offset)
        return Bounds(ErrorCode.NONE, log_start=found[1], end=found[0])

    async def _list_offset(
        self, followed: FollowerPartition, timestamp: int
    ) -> tuple[ErrorCode, Offset]:
        context, partition = self._context, followed.partition
        address = context.address_of(self.leader)
        if address is None:
            return ErrorCode.NETWORK_EXCEPTION, NO_OFFSET
        sent = ListOffsetsPartition(
            partition_index=partition.index,
            current_leader_epoch=followed.role.leader_epoch,
            timestamp=timestamp,
        )
        config = context.metadata.config
        try:
            response = await context.peers.request(
                address,
                ListOffsetsRequest(
                    replica_id=context.me,
                    topics=[ListOffsetsTopic(name=partition.topic, partitions=[sent])],
                ),
                LIST_OFFSETS_VERSIONS,
                ListOffsetsResponse,
                timeout_ms=config.replica_socket_timeout_ms,
                listener=config.inter_broker_listener_name,
            )
        except (PeerUnreachable, PeerLost):
            return ErrorCode.NETWORK_EXCEPTION, NO_OFFSET
        for topic in response.topics:
            for result in topic.partitions:
                return _error_code(result.error_code), Offset(result.offset)
        return ErrorCode.NETWORK_EXCEPTION, NO_OFFSET

    def collect_samples(self) -> Iterator[Sample]:
        yield FETCHES.sample(self._numbers)
        yield PENDING.sample(len(self._awaiting))


class Exchange:
    """Handles the response to one request (a `peers.ResponseHandler`)."""

    __slots__ = ("_fetcher", "generation", "number")

    response_type = FetchResponse

    def __init__(self, fetcher: ReplicaFetcher, generation: int, number: int) -> None:
        self._fetcher = fetcher
        self.generation = generation
        self.number = number

    def on_response(self, response: FetchResponse) -> None:
        try:
            self._fetcher.on_response(response, self)
        except Exception as error:
            # A bug: it stops the node, as in a task.
            self._fetcher.fail(error)

    def on_failed(self, error: PeerUnreachable | PeerLost) -> None:
        self._fetcher.on_failed(error, self)


async def _raise(error: Exception) -> None:
    raise error


def _group_by_topic(keys: list[Key]) -> list[ForgottenTopic]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return [
        ForgottenTopic(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in topics.items()
    ]


def _requires_new_fetch(data: PartitionData) -> bool:
    """Whether the leader includes the partition again only after a new fetch."""
    return bool(data.records or data.error_code) or data.diverging_epoch is not None


def _size(records: Records) -> int:
    return records.size if isinstance(records, FileSlice) else len(records)


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
