"""The fast path of simple Fetch requests: one partition, no session, min_bytes at most 1.

As for Produce (`produce_patterns`), a client's requests for one partition differ only in the
correlation id and fetch offset. The first one leaves a pattern; requests that match it are served
without decoding, and wait without a task. Patterns are built by the general codec, so both paths
give the same bytes. Errors, aborted transactions and all other special cases take the general path
from the beginning, which is possible because the fast path has changed nothing by then. A fetch
that waits while the ACLs change takes it, too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from lograft.api.context import Context
from lograft.api.fetch import NO_RECORDS, READ_COMMITTED, is_permitted
from lograft.broker.broker import Broker
from lograft.broker.partitions.fetch_sessions import EPOCH_FINAL, NO_SESSION, TOPIC_IDS_SINCE
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import LograftError
from lograft.model.exchange import DelayedReply, EncodedResponse, Reply
from lograft.model.types import NO_EPOCH, NO_NODE, Offset
from lograft.security.authorization import Authorizer
from lograft.wire.apis import FETCH_KEY, response_header_version
from lograft.wire.codec import write
from lograft.wire.headers import frame_response, write_request_header
from lograft.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lograft.wire.varints import uvarint

#: Compact lengths and tags: the versions of current clients.
VERSIONS: Final = range(12, 19)
#: From this version on a request does not start with the replica id.
REPLICA_STATE_SINCE: Final = 15
#: Shared by the connections of a listener. When it is reached, all patterns are discarded.
PATTERNS_MAX: Final = 4096
SHARED_BYTES_MAX: Final = 512
#: Every request that fits the fast path has at least this size; its first bytes need no checks.
FRAME_BYTES_MIN: Final = 70
#: API key, version, correlation id, size of the client id.
_HEAD: Final = Struct(">hhih").unpack_from
_START: Final = Struct(">hhi")
#: The low byte of the version; the high byte is always 0.
_VERSION_AT: Final = 3
_OFFSET: Final = Struct(">q")
#: Patterns compare everything after the correlation id except the fetch offset.
_COMPARED_FROM: Final = 8
#: From the end of the client id to the topic: tags, wait, bytes, isolation, session, count.
_TO_TOPIC: Final = 10 + 1 + 21 + 1
_REPLICA_ID: Final = 4
#: Topic id, count, partition, leader epoch.
_ID_TO_OFFSET: Final = 16 + 1 + 4 + 4
#: The name's size byte includes itself; then count, partition, leader epoch.
_NAME_TO_OFFSET: Final = 1 + 4 + 4
_OFFSETS: Final = Struct(">qqq")
#: Takes the place of the offsets while a pattern is built.
_MARK: Final = (0x5A1F_00D1_2B3C_4D5E, 0x6B2E_11C2_3A4B_5C6D, 0x7C3D_22B3_495A_6B7C)
#: Returned if there is nothing to read and the fetch may wait.
NOTHING: Final = b""
#: Follows the records: tags of the partition, of the topic, of the response.
_TAIL: Final = bytes(3)


class Pattern:
    """The common bytes of one client's fetches of one partition."""

    __slots__ = (
        "bytes_max",
        "committed_only",
        "head",
        "index",
        "leader_epoch",
        "middle",
        "name",
        "pack",
        "size",
        "topic_id",
        "wait_ms",
    )

    def __init__(self, request: FetchRequest, response: bytes) -> None:
        (topic,) = request.topics
        (fetch_partition,) = topic.partitions
        self.name = topic.topic
        self.topic_id = topic.topic_id
        self.index = fetch_partition.partition
        self.leader_epoch = fetch_partition.current_leader_epoch
        self.bytes_max = min(fetch_partition.partition_max_bytes, request.max_bytes)
        self.committed_only = request.isolation_level == READ_COMMITTED
        #: A fetch with min_bytes=0 does not wait.
        self.wait_ms = request.max_wait_ms if request.min_bytes > 0 else 0
        at = response.index(_OFFSETS.pack(*_MARK))
        self.head = response[8:at]
        # Without the size of the records, which is 1 (compact) if there are none.
        self.middle = response[at + _OFFSETS.size : -1 - len(_TAIL)]
        #: Size of a response without the records and their size field.
        self.size = len(response) - 4 - 1
        self.pack = Struct(f">ii{len(self.head)}sqqq{len(self.middle)}s").pack


class FetchPatterns:
    __slots__ = (
        "_authorizer",
        "_count",
        "_patterns",
        "broker",
        "measured",
        "served",
        "timed_at",
        "woken",
    )

    def __init__(self, broker: Broker, authorizer: Authorizer | None = None) -> None:
        self.broker = broker
        self._authorizer = authorizer
        #: Indexed by version, then by the bytes that requests share.
        self._patterns: tuple[dict[bytes, Pattern], ...] = ()
        self.forget()
        #: Number of requests that the fast path served.
        self.served = 0
        #: The number of served requests after which the next one is measured.
        self.timed_at = 1
        #: `served` when the last one was measured.
        self.measured = 0
        self.woken = WokenFetches()

    @property
    def acl_version(self) -> int:
        return 0 if self._authorizer is None else self._authorizer.version

    def forget(self) -> None:
        self._count = 0
        self._patterns = tuple({} for _ in range(VERSIONS.stop))

    def serve(
        self, frame: memoryview, access: bytes, generic: Callable[[memoryview], Reply]
    ) -> Reply:
        """Returns the response, or one that waits; or None, and then nothing has changed. `access`
        is the key of the sender (`access_key`); `generic` handles the frame on the general path if
        that becomes necessary during the wait."""
        size = len(frame)
        if size < FRAME_BYTES_MIN:
            return None
        _, version, correlation_id, at = _HEAD(frame)
        if not 12 <= version <= 18 or at < 0:
            return None
        at += _TO_TOPIC if version >= REPLICA_STATE_SINCE else _TO_TOPIC + _REPLICA_ID
        if at >= size:
            return None
        at += _ID_TO_OFFSET if version >= TOPIC_IDS_SINCE else frame[at] + _NAME_TO_OFFSET
        pattern = self._patterns[version].get(
            bytes(frame[_COMPARED_FROM:at]) + bytes(frame[at + _OFFSET.size :]) + access
        )
        if pattern is None or at + _OFFSET.size > size:
            return None
        (offset,) = _OFFSET.unpack_from(frame, at)
        reply = self.read(pattern, version, offset, correlation_id, final=pattern.wait_ms <= 0)
        if reply is None:
            return None
        self.served += 1
        if reply is not NOTHING:
            return reply
        return DelayedFetch(self, pattern, offset, bytes(frame), generic)

    def find(self, pattern: Pattern, version: int) -> Partition | None:
        table = self.broker.partitions
        if version >= TOPIC_IDS_SINCE:
            return table.get_by_id(pattern.topic_id, pattern.index)
        return table.get(pattern.name, pattern.index)

    def read(
        self, pattern: Pattern, version: int, offset: int, correlation_id: int, *, final: bool
    ) -> bytes | EncodedResponse | None:
        """Returns the response, NOTHING if there is nothing to read and the fetch may wait, or None
        if the general path must handle it."""
        partition = self.find(pattern, version)
        if partition is None:
            return None
        try:
            partition.check_epoch(pattern.leader_epoch)
            log = partition.leader_log()
            high_watermark = partition.rule.high_watermark
            stable = partition.last_stable_offset
            bound = stable if pattern.committed_only else high_watermark
            part = partition.read(
                Offset(offset),
                bytes_max=min(pattern.bytes_max, self.broker.metadata.config.fetch_max_bytes),
                bound=bound,
                at_least_one=True,
            )
            if part is None and not final:
                return NOTHING
            if (
                part is not None
                and pattern.committed_only
                and log.find_aborted_in_slice(part, offset, bound)
            ):
                return None
        except LograftError:
            return None
        size = 0 if part is None else part.size
        length = uvarint(size + 1)
        head = pattern.pack(
            pattern.size + len(length) + size,
            correlation_id,
            pattern.head,
            high_watermark,
            stable,
            log.log_start_offset,
            pattern.middle,
        )
        if part is None:
            return head + length + _TAIL
        partition.traffic.bytes_out += size
        return EncodedResponse((head + length, part, _TAIL))

    def learn(
        self, frame: memoryview, context: Context, request: FetchRequest, access: bytes
    ) -> None:
        """Adds the pattern of a simple request that the general path has handled."""
        version, client_id = context.api_version, context.client_id
        if version not in VERSIONS or client_id is None or not _is_simple(request):
            return
        (topic,) = request.topics
        (fetch_partition,) = topic.partitions
        # Encodes the same request again, with a fetch offset that is easy to find in the bytes.
        fetch_partition.fetch_offset, offset = _MARK[0], fetch_partition.fetch_offset
        whole = write_request_header(FETCH_KEY, version, 0, client_id) + write(request, version)
        fetch_partition.fetch_offset = offset
        before, mark, after = whole[_COMPARED_FROM:].partition(_OFFSET.pack(_MARK[0]))
        at = _COMPARED_FROM + len(before)
        if (
            not mark
            or len(whole) > SHARED_BYTES_MAX
            or before + after + access in self._patterns[version]
            or frame[_COMPARED_FROM:at] != before
            or frame[at + _OFFSET.size :] != after
            or not is_permitted(context, request)
        ):
            return
        if self._count == PATTERNS_MAX:
            self.forget()
        self._count += 1
        self._patterns[version][before + after + access] = Pattern(
            request, _marked_response(request, version)
        )


class WokenFetches:
    """Delayed fetches that may be completed: some when the read with the append has been handled,
    all others in the event loop's next iteration."""

    __slots__ = ("_is_due", "_is_running", "_rechecks")

    def __init__(self) -> None:
        self._rechecks: deque[Callable[[], None]] = deque()
        self._is_due = False
        #: A completed fetch lets its connection handle further frames, which may wake other
        #: fetches. These are completed later, however long the chain.
        self._is_running = False

    def __bool__(self) -> bool:
        return bool(self._rechecks)

    def add(self, recheck: Callable[[], None]) -> None:
        self._rechecks.append(recheck)
        if not self._is_due:
            self._call_soon()

    def run(self, count_max: int) -> None:
        rechecks = self._rechecks
        if self._is_running:
            return
        self._is_running = True
        try:
            while rechecks and count_max > 0:
                recheck = rechecks.popleft()
                count_max -= 1
                recheck()
        finally:
            self._is_running = False

    def _run_all(self) -> None:
        self._is_due = False
        self.run(len(self._rechecks))
        if self._rechecks and not self._is_due:
            self._call_soon()

    def _call_soon(self) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_soon(self._run_all)


class DelayedFetch(DelayedReply):
    """A fetch that waits until its partition has something to read, or the wait time expires."""

    __slots__ = (
        "_frame",
        "_generic",
        "_is_over",
        "_offset",
        "_partition",
        "_pattern",
        "_patterns",
        "_recheck",
        "_timer",
        "_version",
        "_woken",
    )

    def __init__(
        self,
        patterns: FetchPatterns,
        pattern: Pattern,
        offset: int,
        frame: bytes,
        generic: Callable[[memoryview], Reply],
    ) -> None:
        self._patterns = patterns
        self._pattern = pattern
        self._offset = offset
        self._frame = frame
        self._generic = generic
        self._version = patterns.acl_version
        self._partition: Partition | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._recheck: Callable[[], None] | None = None
        self._woken = False
        self._is_over = False

    def begin(self, recheck: Callable[[], None]) -> None:
        self._recheck = recheck
        self._timer = asyncio.get_running_loop().call_later(
            self._pattern.wait_ms / 1000, self._on_time
        )
        partition = self._patterns.find(self._pattern, self._frame[_VERSION_AT])
        if partition is not None:
            self._partition = partition
            partition.fetch_waits[self] = None
        if partition is None or partition.rule.high_watermark > self._offset:
            # Something has changed since the read, or there is an open transaction.
            self.wake()

    def add(self, count: int) -> None:
        """The partition has more bytes to read."""
        if not self._woken:
            self._woken = True
            self._patterns.woken.add(self._on_woken)

    def wake(self) -> None:
        """Something else about the partition has changed."""
        self.add(0)

    def _on_time(self) -> None:
        self._is_over = True
        self._patterns.broker.expirations.fetches += 1
        self._on_woken()

    def _on_woken(self) -> None:
        self._woken = False
        if self._recheck is not None:
            self._recheck()

    def try_complete(self) -> Reply:
        (_, version, correlation_id) = _START.unpack_from(self._frame)
        partition = self._partition
        reply = None
        if (
            partition is not None
            and partition is self._patterns.find(self._pattern, version)
            and self._version == self._patterns.acl_version
        ):
            reply = self._patterns.read(
                self._pattern, version, self._offset, correlation_id, final=self._is_over
            )
            if reply is NOTHING:
                return self
        self.cancel()
        if reply is not None:
            return reply
        self._patterns.served -= 1
        return self._generic(memoryview(bytearray(self._frame)))

    def cancel(self) -> None:
        self._recheck = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._partition is not None:
            self._partition.fetch_waits.pop(self, None)
            self._partition = None


def _is_simple(request: FetchRequest) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    fetch_partition = request.topics[0].partitions[0]
    return (
        request.session_id == NO_SESSION
        and request.session_epoch == EPOCH_FINAL
        and request.min_bytes <= 1
        and request.replica_id == NO_NODE
        and request.replica_state is None
        and request.cluster_id is None
        and not request.forgotten_topics_data
        and not request.rack_id
        and fetch_partition.last_fetched_epoch == NO_EPOCH
    )


def _marked_response(request: FetchRequest, version: int) -> bytes:
    (topic,) = request.topics
    high_watermark, stable, log_start = _MARK
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=topic.partitions[0].partition,
                        high_watermark=high_watermark,
                        last_stable_offset=stable,
                        log_start_offset=log_start,
                        aborted_transactions=(
                            [] if request.isolation_level == READ_COMMITTED else None
                        ),
                        records=NO_RECORDS,
                    )
                ],
            )
        ]
    )
    parts = frame_response(
        response,
        version,
        correlation_id=0,
        header_version=response_header_version(FETCH_KEY, version),
    )
    return b"".join(part for part in parts if isinstance(part, bytes))
