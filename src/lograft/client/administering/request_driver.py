"""Sends the requests of an admin client: looks up the node that serves each item, sends every node
one request for its items, and retries the items that failed with a transient error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from lograft.client.administering.settings import AdminSettings
from lograft.client.arguments import as_iterable
from lograft.client.backoff import backoff_ms
from lograft.client.broker_connection import Request
from lograft.client.core import ClientCore
from lograft.client.errors import (
    BrokerError,
    BrokerMissing,
    ClientError,
    ConnectionFailed,
    SomeFailed,
    TimedOut,
    UnsupportedByBroker,
    broker_error,
    raise_for,
)
from lograft.client.network import Broker, Node
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import TopicPartition
from lograft.wire.message import Message
from lograft.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R", bound=Message)

#: The node that serves each item; None: any node.
Destinations: TypeAlias = Mapping[K, Node | ClientError | None]
Lookup: TypeAlias = Callable[[Sequence[K]], Awaitable[Destinations[K]]]
#: Sends one request to a node and returns the result of each item in it.
Send: TypeAlias = Callable[[Node | None, Sequence[K]], Awaitable[Mapping[K, T | ClientError]]]

GROUP: Final = 0
TRANSACTION: Final = 1
CONTROLLER_ENDPOINTS: Final = 2

#: Error codes of a node that does not serve the item yet, or no longer, or is overloaded.
_TRANSIENT: Final = frozenset(
    (
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
)
#: Metadata of a new topic or broker may not have reached every broker yet. These codes are retried
#: a few times only, so that a call for one that does not exist fails soon.
_MISSING: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
_MISSING_ATTEMPTS_MAX: Final = 4


class RequestDriver:
    def __init__(self, core: ClientCore[AdminSettings]) -> None:
        self._core = core
        self._settings = core.settings

    @property
    def request_timeout_ms(self) -> int:
        """The timeout that requests carry for the work of the server."""
        return self._settings.request_timeout_ms

    @property
    def uses_controllers(self) -> bool:
        """Whether requests go to controllers (bootstrap.controllers) instead of brokers."""
        return self._settings.uses_controllers

    def random_bytes(self, count: int) -> bytes:
        return self._core.runtime.randomness.bytes(count)

    async def connect(self) -> None:
        """Connects to any of the bootstrap servers. Raises ConnectionFailed if none responds."""
        await self._core.network.connect_any()

    async def probe(self, node: Node) -> None:
        if isinstance(node, int) and node not in self._core.network.brokers:
            await self.fetch_metadata([])
        await self._core.network.connect(node)

    # ── lookups, requests and retries ────────────────────────────────────────────────────────

    async def outcomes_of(
        self, items: Iterable[K], lookup: Lookup[K], send: Send[K, T]
    ) -> dict[K, T | ClientError]:
        """Returns the result or the error of each item. Each attempt looks up the nodes of the
        pending items and sends one request to each node, all concurrently."""
        core, settings = self._core, self._settings
        core.check_open()
        deadline_ms = core.now_ms() + settings.call_timeout_ms
        outcomes: dict[K, T | ClientError] = {}
        pending = list(dict.fromkeys(as_iterable(items)))
        failures = 0
        while pending:
            attempted = await self._attempt(pending, lookup, send)
            outcomes.update(attempted)
            failures += 1
            pending = [
                item
                for item in pending
                if isinstance(error := attempted[item], ClientError)
                and _is_retriable(error, failures)
            ]
            wait_ms = backoff_ms(
                settings.retry_backoff_ms,
                settings.retry_backoff_max_ms,
                failures,
                core.runtime.randomness,
            )
            if failures > settings.retries or core.now_ms() + wait_ms > deadline_ms:
                outcomes.update(
                    (item, _timeout_error(attempted[item], settings)) for item in pending
                )
                break
            if pending:
                await asyncio.sleep(wait_ms / 1000)
        return outcomes

    async def results_of(
        self, items: Iterable[K], lookup: Lookup[K], send: Send[K, T]
    ) -> dict[K, T]:
        """Like `outcomes_of`, but raises if an item failed."""
        return raise_failures(await self.outcomes_of(items, lookup, send))

    async def result_of(
        self,
        request: Request,
        response_type: type[R],
        check: Callable[[R], None],
        *,
        lookup: Lookup[str] | None = None,
        at_least: int = 0,
        at_most: int | None = None,
        lograft_only: bool = False,
    ) -> R:
        """Sends a request that is not about a list of items, to any node by default. `check` raises
        the errors in the response."""

        async def send(node: Node | None, items: Sequence[str]) -> dict[str, R]:
            response = await self.send(
                node,
                request,
                response_type,
                at_least=at_least,
                at_most=at_most,
                lograft_only=lograft_only,
            )
            check(response)
            return dict.fromkeys(items, response)

        return (await self.results_of([""], lookup or self.any_node, send))[""]

    async def _attempt(
        self, items: Sequence[K], lookup: Lookup[K], send: Send[K, T]
    ) -> dict[K, T | ClientError]:
        try:
            destinations = await lookup(items)
        except ClientError as error:
            if isinstance(error, ConnectionFailed):
                # All known brokers are unreachable: start again from the bootstrap servers.
                self._core.network.rebootstrap()
            return dict.fromkeys(items, error)
        outcomes: dict[K, T | ClientError] = {}
        by_node: dict[Node | None, list[K]] = {}
        for item in items:
            destination = destinations[item]
            if isinstance(destination, ClientError):
                outcomes[item] = destination
            else:
                by_node.setdefault(destination, []).append(item)
        for results in await asyncio.gather(
            *(_send_or_fail(send, node, group) for node, group in by_node.items())
        ):
            outcomes.update(results)
        return outcomes

    async def send(
        self,
        node: Node | None,
        request: Request,
        response_type: type[R],
        *,
        at_least: int = 0,
        at_most: int | None = None,
        lograft_only: bool = False,
    ) -> R:
        return await self._core.network.request(
            request,
            response_type,
            node=node,
            at_least=at_least,
            at_most=at_most,
            lograft_only=lograft_only,
        )

    # ── lookups ──────────────────────────────────────────────────────────────────────────────

    async def any_node(self, items: Sequence[K]) -> Destinations[K]:
        return dict.fromkeys(items, None)

    async def find_controller(self, items: Sequence[K]) -> Destinations[K]:
        """Brokers forward to the active controller; with bootstrap.controllers the request must go
        to the active controller itself."""
        node: Node | None
        if self._settings.uses_controllers:
            node = await self._find_active_controller()
        else:
            metadata = await self.fetch_metadata([])
            brokers = self._core.network.brokers
            node = metadata.controller_id if metadata.controller_id in brokers else None
        return dict.fromkeys(items, node)

    async def find_brokers(self, ids: Sequence[int]) -> Destinations[int]:
        """Finds nodes by id: brokers, or controllers with bootstrap.controllers."""
        if self._settings.uses_controllers:
            await self._fetch_controllers()
        else:
            await self.fetch_metadata([])
        known = self._core.network.brokers
        role = "controller" if self._settings.uses_controllers else "broker"
        return {
            node_id: node_id if node_id in known else BrokerMissing(node_id, known, role)
            for node_id in ids
        }

    async def find_leaders(
        self, partitions: Sequence[TopicPartition]
    ) -> Destinations[TopicPartition]:
        names = sorted({partition.topic for partition in partitions})
        topics = {topic.name: topic for topic in (await self.fetch_metadata(names)).topics}
        destinations: dict[TopicPartition, Node | ClientError] = {}
        for partition in partitions:
            name = partition.topic
            topic = topics[name]
            if topic.error_code:
                destinations[partition] = broker_error(topic.error_code, f"topic {name!r}")
                continue
            leaders = {entry.partition_index: entry.leader_id for entry in topic.partitions}
            leader = leaders.get(partition.partition)
            if leader is None:
                destinations[partition] = broker_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} has {len(leaders)} partitions, so there is no partition"
                    f" {partition.partition}",
                )
            elif leader not in self._core.network.brokers:
                destinations[partition] = broker_error(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader"
                )
            else:
                destinations[partition] = leader
        return destinations

    async def find_group_coordinators(self, groups: Sequence[str]) -> Destinations[str]:
        return await self._find_coordinators(GROUP, "group", groups)

    async def find_transaction_coordinators(self, ids: Sequence[str]) -> Destinations[str]:
        return await self._find_coordinators(TRANSACTION, "transactional id", ids)

    async def _find_coordinators(
        self, key_type: int, key_name: str, keys: Sequence[str]
    ) -> Destinations[str]:
        response = await self.send(
            None,
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys)),
            FindCoordinatorResponse,
            at_least=4,
        )
        destinations: dict[str, Node | ClientError] = {}
        for coordinator in response.coordinators:
            if coordinator.error_code:
                destinations[coordinator.key] = broker_error(
                    coordinator.error_code,
                    f"the coordinator of {key_name} {coordinator.key!r}",
                    coordinator.error_message,
                )
                continue
            address = Address(coordinator.host, coordinator.port)
            known = self._core.network.brokers.get(coordinator.node_id)
            if known is None or known.address != address:
                self._core.network.update_broker(Broker(coordinator.node_id, address))
            destinations[coordinator.key] = coordinator.node_id
        return destinations

    async def _find_active_controller(self) -> int:
        controller_id = await self._fetch_controllers()
        if controller_id not in self._core.network.brokers:
            raise broker_error(ErrorCode.NOT_CONTROLLER, "there is no active controller")
        return controller_id

    async def _fetch_controllers(self) -> int:
        """Updates the known controllers. Returns the id of the active one, -1 if there is none."""
        response = await self.send(
            None,
            DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS),
            DescribeClusterResponse,
            at_least=1,
        )
        raise_for(response.error_code, "the controllers", response.error_message)
        self._core.network.update_brokers(
            [Broker(node.broker_id, Address(node.host, node.port)) for node in response.brokers]
        )
        return response.controller_id

    async def fetch_metadata(self, topics: Iterable[str | UUID] | None) -> MetadataResponse:
        """Requests the metadata of these topics from any broker; None: of all topics."""
        if self._settings.uses_controllers:
            raise UnsupportedByBroker(
                "controllers do not serve this request: set bootstrap.servers instead of"
                " bootstrap.controllers"
            )
        requested = (
            None
            if topics is None
            else [
                MetadataRequestTopic(name=topic)
                if isinstance(topic, str)
                else MetadataRequestTopic(name=None, topic_id=topic)
                for topic in topics
            ]
        )
        by_id = any(topic.name is None for topic in requested or ())
        response = await self.send(
            None,
            MetadataRequest(topics=requested, allow_auto_topic_creation=False),
            MetadataResponse,
            at_least=12 if by_id else 4,
        )
        raise_for(response.error_code, "metadata")
        if not response.brokers:
            raise broker_error(
                ErrorCode.BROKER_NOT_AVAILABLE, "the metadata response contains no brokers"
            )
        self._core.network.update_brokers(
            [
                Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
                for broker in response.brokers
            ]
        )
        return response

    async def list_broker_ids(self) -> list[int]:
        async def send(_node: Node | None, items: Sequence[str]) -> dict[str, list[int]]:
            response = await self.fetch_metadata([])
            return dict.fromkeys(items, sorted(broker.node_id for broker in response.brokers))

        return (await self.results_of([""], self.any_node, send))[""]


def raise_failures(outcomes: Mapping[K, T | ClientError]) -> dict[K, T]:
    """Returns the results if no item failed. Otherwise raises SomeFailed, or the error itself if
    every item failed with the same one."""
    results: dict[K, T] = {}
    failed: dict[K, ClientError] = {}
    for item, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            failed[item] = outcome
        else:
            results[item] = outcome
    if failed and not results and len({str(error) for error in failed.values()}) == 1:
        raise next(iter(failed.values()))
    if failed:
        raise SomeFailed(results, failed)
    return results


async def _send_or_fail(
    send: Send[K, T], node: Node | None, items: Sequence[K]
) -> Mapping[K, T | ClientError]:
    """Returns the results of the request, or its error for every item."""
    try:
        return await send(node, items)
    except ClientError as error:
        return dict.fromkeys(items, error)


def _is_retriable(error: ClientError, failures: int) -> bool:
    if isinstance(error, BrokerMissing) or (
        isinstance(error, BrokerError) and error.code in _MISSING
    ):
        return failures < _MISSING_ATTEMPTS_MAX
    if isinstance(error, BrokerError):
        return error.code in _TRANSIENT
    return error.is_retriable


def _timeout_error(error: Any, settings: AdminSettings) -> TimedOut:
    timed_out = TimedOut(f"{error}; gave up after {settings.call_timeout_ms / 1000:.0f} s")
    timed_out.__cause__ = error
    return timed_out
