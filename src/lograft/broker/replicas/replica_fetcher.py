"""The fetches from one leader node: one stream for all partitions that follow it.

A long poll in an incremental session (KIP-227): a request names only what changed, an answer only
what is new, so that idle partitions cost nothing. When a partition has something to ask for while
the poll is parked at the leader (its log was flushed or cut, it has just begun to follow), the
next request goes out at once, and the leader answers the parked one (`follower_sessions`).

What is asked stays asked: a partition without news is not in the answer and goes on waiting in the
session with its fetch.

A fetch offset promises that everything below it is on disk, so a partition whose disk is busy asks
for nothing. It stays in the session all the same, and if all partitions of the stream wait for
their disks, empty polls go on: the leader sees a follower that is slow, not one that is dead.

No task: an answer is used inside the read that brought it, and where nothing has to be flushed the
next request leaves in the same turn of the loop.
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
#: Requests under way: a parked poll, and the one that interrupts it.
IN_FLIGHT_MAX: Final = 2
#: Pauses before each look whether a leader whose connection broke is still there.
KNOCKS_MS: Final = (0, 20)
#: Who does not even refuse within this time is not known to be gone.
KNOCK_MS_MAX: Final = 2_000
LATEST: Final = -1
EARLIEST: Final = -2

Key = tuple[UUID, int]

FETCHES: Final = Counter(
    "lograft_replica_fetches_total",
    "Fetch requests that this broker sent as a follower.",
)
PENDING: Final = Gauge(
    "lograft_replica_fetches_pending",
    "Partitions that this broker follows and for which the leader has not answered yet.",
)


class Asked(NamedTuple):
    """A fetch, and the number of the request that carried it: only that request and later ones can
    answer it."""

    fetch: FollowerFetch
    number: int


class FetcherContext(NamedTuple):
    """What all streams of a broker have in common."""

    me: NodeId
    clock: Clock
    spawn: Spawn
    peers: Peers
    metadata: ClusterMetadata
    broker_epoch: Callable[[], BrokerEpoch]
    #: Where other brokers reach a broker; None: the image does not know.
    address_of: Callable[[NodeId], Address | None]
    throttle: ReplicationThrottle
    #: Hears of brokers whose process is gone: a connection was refused.
    on_rejected: Callable[[NodeId], None]
    suspect_brokers: SuspectBrokers


class ReplicaFetcher:
    """A `follower_partition.Stream`."""

    def __init__(self, leader: NodeId, around: FetcherContext) -> None:
        self.leader = leader
        self._around = around
        self.followed: dict[Key, FollowerPartition] = {}
        #: To be asked for their next fetch before the next request.
        self._due: dict[Key, None] = {}
        #: (when, order, who): after errors.
        self._retries: list[tuple[int, int, Key]] = []
        #: What was asked and not answered yet.
        self._awaiting: dict[Key, Asked] = {}
        #: What the session at the leader holds; None: it was answered and has to be asked anew.
        self._session: dict[Key, Asked | None] = {}
        #: Partitions that were answered, with the number of that request, and that cannot ask anew
        #: before their disk is done. They stay in the session.
        self._busy: dict[Key, tuple[FollowerPartition, int]] = {}
        #: When the last request was sent.
        self._sent_ms = 0
        self._session_id = NO_SESSION
        self._session_epoch = EPOCH_INITIAL
        #: Answers of an earlier session are not for this one.
        self._generation = 0
        self._numbers = 0
        self._in_flight = 0
        #: A look is on its way, in the loop's next turn.
        self._looks_soon = False
        self._retry_timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._failures = 0
        #: The newest request that was answered, and when: a partition that it was about and that
        #: is not in the answer has nothing new.
        self._answered = (0, -1)

    # Who takes part.

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
                # The leader may have answered what nobody will hear.
                self._session[followed.key] = None
            self._due[followed.key] = None
            self._look_soon()

    def consider(self, followed: FollowerPartition) -> None:
        if self.followed.get(followed.key) is followed and followed.key not in self._awaiting:
            self._due[followed.key] = None
            self._look_soon()

    def fail(self, error: Exception) -> None:
        self.stop()
        self._around.spawn(_raise(error), name=f"fetch from {self.leader}")

    def stop(self) -> None:
        """Nothing is fetched any more, and no answer counts."""
        self._is_stopped = True
        self._generation += 1
        if self._retry_timer is not None:
            self._retry_timer.cancel()

    # The stream.

    def _look_soon(self) -> None:
        """In the next turn: whoever else is ready in this one goes with the same request."""
        if not self._looks_soon:
            self._looks_soon = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Sends what there is to ask for."""
        self._looks_soon = False
        if self._is_stopped:
            return
        now_ms = self._around.clock.mono_ms()
        request = self._next_request(now_ms)
        while request is not None:
            self._send(request)
            request = self._next_request(now_ms)
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        due_ms = self._next_look_ms()
        if due_ms is not None:
            wait_ms = max(1, due_ms - now_ms)
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(wait_ms / 1000, self._look)

    def _next_look_ms(self) -> int | None:
        """When to look again although nothing happened; None: no such time."""
        due_ms = self._retries[0][0] if self._retries else None
        if self._busy and not self._in_flight and self._session_id != NO_SESSION:
            due_ms = self._keep_alive_ms if due_ms is None else min(due_ms, self._keep_alive_ms)
        return due_ms

    @property
    def _keep_alive_ms(self) -> int:
        """When the leader should hear of this follower again. Most flushes are done before."""
        return self._sent_ms + self._around.metadata.config.partition_raft_fetch_timeout_ms // 4

    def _next_request(self, now_ms: int) -> FetchRequest | None:
        """None: nothing to ask for now, or what is under way has to come back first."""
        if self._in_flight and (self._in_flight >= IN_FLIGHT_MAX or self._session_id == NO_SESSION):
            return None
        while self._retries and self._retries[0][0] <= now_ms:
            self._due[heappop(self._retries)[2]] = None
        changed, forgotten = self._collect(now_ms)
        keeps_alive = (
            bool(self._busy) and self._session_id != NO_SESSION and now_ms >= self._keep_alive_ms
        )
        if not (self._awaiting or keeps_alive) or (self._in_flight and not changed):
            # Nothing urgent: who is to be forgotten is looked at again with the next request.
            self._due |= dict.fromkeys(forgotten)
            return None
        for key in forgotten:
            del self._session[key]
        if self._session_id == NO_SESSION:
            changed = {key: asked.fetch for key, asked in self._awaiting.items()}
            forgotten = []
        return self._request(changed, forgotten)

    def _collect(self, now_ms: int) -> tuple[dict[Key, FollowerFetch], list[Key]]:
        """What the next request has to tell: what is new, and what is not wanted for now."""
        due, self._due = self._due, {}
        changed: dict[Key, FollowerFetch] = {}
        forgotten: list[Key] = []
        for key in due:
            if key in self._awaiting:
                continue
            followed = self.followed.get(key)
            if followed is None:
                fetch = None
            elif followed.is_throttled and self._around.throttle.is_exceeded(now_ms=now_ms):
                fetch = None
                heappush(self._retries, (now_ms + PAUSE_MS, len(self._retries), key))
            else:
                fetch = followed.next_fetch(now_ms)
            if fetch is None and followed is not None and self._stays_busy(key, followed):
                continue
            self._busy.pop(key, None)
            told = self._session.get(key)
            if fetch is None:
                if key in self._session:
                    forgotten.append(key)
                if followed is not None and followed.retry_at_ms > now_ms:
                    heappush(self._retries, (followed.retry_at_ms, len(self._retries), key))
            elif told is not None and told.fetch == fetch:
                self._awaiting[key] = Asked(fetch, told.number)
            else:
                changed[key] = fetch
                self._awaiting[key] = self._session[key] = Asked(fetch, self._numbers + 1)
        return changed, forgotten

    def _stays_busy(self, key: Key, followed: FollowerPartition) -> bool:
        busy = self._busy.get(key)
        return busy is not None and busy[0] is followed and followed.is_disk_busy

    def _request(self, changed: dict[Key, FollowerFetch], forgotten: list[Key]) -> FetchRequest:
        around = self._around
        config = around.metadata.config
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
            replica_state=ReplicaState(replica_id=around.me, replica_epoch=around.broker_epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=_forgotten(forgotten),
        )
        if self._session_id != NO_SESSION:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        return request

    def _send(self, request: FetchRequest) -> None:
        around = self._around
        exchange = Exchange(self, self._generation, self._numbers)
        address = around.address_of(self.leader)
        self._in_flight += 1
        self._sent_ms = around.clock.mono_ms()
        if address is None:
            error = PeerLost(f"broker {self.leader} has no address for brokers")
            asyncio.get_running_loop().call_soon(exchange.on_failed, error)
            return
        config = around.metadata.config
        around.peers.send(
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
        self._look()

    def on_failed(self, error: PeerUnreachable | PeerLost, exchange: "Exchange") -> None:
        self._in_flight -= 1
        if exchange.generation == self._generation:
            self._on_failed(error)
            address = self._around.address_of(self.leader)
            if isinstance(error, PeerLost) and address is not None:
                # Beside the stream: the next request does not wait for it.
                self._around.spawn(self._knock(address), name=f"connect at {self.leader}")
        self._look_soon()

    def _on_response(self, response: FetchResponse, number: int) -> None:
        """Synchronous: the records are used before anything else happens."""
        now_ms = self._around.clock.mono_ms()
        if response.error_code:
            LOGGER.info("broker %d ends the fetch session: %d", self.leader, response.error_code)
            self._end_session()
            return
        if self._failures:
            self._failures = 0
            self._around.suspect_brokers.on_contact(self.leader)
        self._answered = max(self._answered, (number, now_ms))
        if self._session_id == NO_SESSION:
            # A leader that keeps none for us is told everything every time.
            self._session_id = response.session_id
            self._session_epoch = 1 if self._session_id != NO_SESSION else EPOCH_INITIAL
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                told = self._session.get(key)
                if told is not None and told.number <= number and _ends_asking(data):
                    self._session[key] = None
                asked = self._awaiting.get(key)
                if asked is None or asked.number > number:
                    if data.error_code and key in self._busy:
                        # It leads this partition no more, so its polls say nothing about it.
                        del self._busy[key]
                        self._due[key] = None
                    continue
                del self._awaiting[key]
                self._due[key] = None
                followed = self.followed[key]
                if not data.error_code:
                    self._busy[key] = (followed, number)
                if data.records and followed.is_throttled:
                    self._around.throttle.record(_size(data.records), now_ms=now_ms)
                followed.on_response(asked.fetch, data, now_ms=now_ms)

    def _on_failed(self, error: PeerUnreachable | PeerLost) -> None:
        """Nobody knows what of it arrived: everything is asked anew, after a while."""
        now_ms = self._around.clock.mono_ms()
        self._failures += 1
        if self._failures == 1:
            LOGGER.warning("fetching from broker %d: %s", self.leader, error)
        awaiting, self._awaiting = self._awaiting, {}
        self._end_session()
        for key, asked in awaiting.items():
            self.followed[key].on_request_failed(asked.fetch, now_ms=now_ms)
            self._due[key] = None
        if isinstance(error, PeerUnreachable) and error.refused:
            self._around.on_rejected(self.leader)

    async def _knock(self, address: Address) -> None:
        """The connection broke: is the process gone? Its listener may end a moment later than its
        connections, so once more where somebody seems to be there."""
        around, config = self._around, self._around.metadata.config
        around.suspect_brokers.on_lost(self.leader)
        try:
            for pause_ms in KNOCKS_MS:
                await asyncio.sleep(pause_ms / 1000)
                await around.peers.connect(
                    address,
                    timeout_ms=min(KNOCK_MS_MAX, config.replica_socket_timeout_ms),
                    lane=FETCH_LANE,
                    listener=config.inter_broker_listener_name,
                )
        except PeerUnreachable as error:
            if error.refused:
                around.on_rejected(self.leader)
        else:
            around.suspect_brokers.on_contact(self.leader)

    def _end_session(self) -> None:
        """What is awaited is still awaited: the next request, a full one, names it again."""
        self._generation += 1
        self._busy.clear()
        self._session = {**self._awaiting}
        self._session_id = NO_SESSION
        self._session_epoch = EPOCH_INITIAL

    def last_contact_ms(self, followed: FollowerPartition) -> int:
        """When the leader last let this partition's fetch wait, or answered a poll of the session
        in which the partition waits for its disk; -1: it did not."""
        asked = self._awaiting.get(followed.key)
        number, when_ms = self._answered
        if asked is not None:
            return when_ms if asked.number <= number else -1
        busy = self._busy.get(followed.key)
        return when_ms if busy is not None and busy[0] is followed and busy[1] < number else -1

    # Out of range.

    async def fetch_bounds(self, followed: FollowerPartition) -> Bounds:
        """Where the leader's log begins and ends, as ListOffsets tells replicas."""
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
        around, partition = self._around, followed.partition
        address = around.address_of(self.leader)
        if address is None:
            return ErrorCode.NETWORK_EXCEPTION, NO_OFFSET
        asked = ListOffsetsPartition(
            partition_index=partition.index,
            current_leader_epoch=followed.role.leader_epoch,
            timestamp=timestamp,
        )
        config = around.metadata.config
        try:
            response = await around.peers.request(
                address,
                ListOffsetsRequest(
                    replica_id=around.me,
                    topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])],
                ),
                LIST_OFFSETS_VERSIONS,
                ListOffsetsResponse,
                timeout_ms=config.replica_socket_timeout_ms,
                listener=config.inter_broker_listener_name,
            )
        except (PeerUnreachable, PeerLost):
            return ErrorCode.NETWORK_EXCEPTION, NO_OFFSET
        for topic in response.topics:
            for answer in topic.partitions:
                return _known(answer.error_code), Offset(answer.offset)
        return ErrorCode.NETWORK_EXCEPTION, NO_OFFSET

    def collect_samples(self) -> Iterator[Sample]:
        yield FETCHES.sample(self._numbers)
        yield PENDING.sample(len(self._awaiting))


class Exchange:
    """A request and its answer: a `peers.ResponseHandler`."""

    __slots__ = ("_fetcher", "generation", "number")

    response_type = FetchResponse

    def __init__(self, fetcher: ReplicaFetcher, generation: int, number: int) -> None:
        self._fetcher = fetcher
        self.generation = generation
        self.number = number

    def on_response(self, answer: FetchResponse) -> None:
        try:
            self._fetcher.on_response(answer, self)
        except Exception as error:
            # A bug: as in a task, it ends the node.
            self._fetcher.fail(error)

    def on_failed(self, error: PeerUnreachable | PeerLost) -> None:
        self._fetcher.on_failed(error, self)


async def _raise(error: Exception) -> None:
    raise error


def _forgotten(keys: list[Key]) -> list[ForgottenTopic]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return [
        ForgottenTopic(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in topics.items()
    ]


def _ends_asking(data: PartitionData) -> bool:
    """Whether the leader says no more about the partition until it is asked anew."""
    return bool(data.records or data.error_code) or data.diverging_epoch is not None


def _size(records: Records) -> int:
    return records.size if isinstance(records, FileSlice) else len(records)


def _known(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
