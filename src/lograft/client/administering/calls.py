"""The one way in which an administrator asks: where is each thing answered, who is asked what, and
what is asked again."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from lograft.client.administering.settings import AdminSettings
from lograft.client.arguments import several
from lograft.client.backoff import backoff_ms
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
from lograft.client.link import Request
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

#: Where each thing is answered; None: anywhere.
Places: TypeAlias = Mapping[K, Node | ClientError | None]
Locate: TypeAlias = Callable[[Sequence[K]], Awaitable[Places[K]]]
#: What a node says about each of the things it was asked about.
Ask: TypeAlias = Callable[[Node | None, Sequence[K]], Awaitable[Mapping[K, T | ClientError]]]

GROUP: Final = 0
TRANSACTION: Final = 1
CONTROLLER_ENDPOINTS: Final = 2

#: Answers of a broker that is not, or not yet, or no longer the right one.
_PASSING: Final = frozenset(
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
#: A topic or broker that is new may not be known to every broker yet; one that does not exist shall
#: not cost a minute.
_MISSING: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
_MISSING_ATTEMPTS_MAX: Final = 4


class Calls:
    def __init__(self, core: ClientCore[AdminSettings]) -> None:
        self._core = core
        self._settings = core.settings

    @property
    def request_timeout_ms(self) -> int:
        """How long a server may take for what it is asked to do."""
        return self._settings.request_timeout_ms

    @property
    def asks_controllers(self) -> bool:
        """Requests go to controllers (bootstrap.controllers), not to brokers."""
        return self._settings.asks_controllers

    async def connect(self) -> None:
        """Raises ConnectionFailed when none of the named servers answers now."""
        await self._core.network.any_link()

    async def probe(self, node: Node) -> None:
        if isinstance(node, int) and node not in self._core.network.brokers:
            await self.metadata([])
        await self._core.network.link(node)

    # ── the mechanism ────────────────────────────────────────────────────────────────────────

    async def spread(
        self, items: Iterable[K], locate: Locate[K], ask: Ask[K, T]
    ) -> dict[K, T | ClientError]:
        """What came of each item. Each attempt locates what is still open, and asks every place
        once, all at the same time."""
        core, settings = self._core, self._settings
        core.check_open()
        deadline_ms = core.now_ms() + settings.patience_ms
        outcomes: dict[K, T | ClientError] = {}
        pending = list(dict.fromkeys(several(items)))
        failures = 0
        while pending:
            attempted = await self._attempt(pending, locate, ask)
            outcomes.update(attempted)
            failures += 1
            pending = [
                item
                for item in pending
                if isinstance(error := attempted[item], ClientError) and _may_pass(error, failures)
            ]
            wait_ms = backoff_ms(
                settings.retry_backoff_ms,
                settings.retry_backoff_max_ms,
                failures,
                core.runtime.randomness,
            )
            if failures > settings.retries or core.now_ms() + wait_ms > deadline_ms:
                outcomes.update((item, _given_up(attempted[item], settings)) for item in pending)
                break
            if pending:
                await asyncio.sleep(wait_ms / 1000)
        return outcomes

    async def all_of(self, items: Iterable[K], locate: Locate[K], ask: Ask[K, T]) -> dict[K, T]:
        """As `spread`; an item that failed is raised."""
        return settled(await self.spread(items, locate, ask))

    async def one(
        self,
        request: Request,
        answer: type[R],
        check: Callable[[R], None],
        *,
        locate: Locate[str] | None = None,
        at_least: int = 0,
        at_most: int | None = None,
        lograft_only: bool = False,
    ) -> R:
        """A question that is about one thing as a whole; `check` raises what the answer's error
        codes mean. Anybody is asked, if no place is given."""

        async def ask(node: Node | None, items: Sequence[str]) -> dict[str, R]:
            found = await self.ask(
                node,
                request,
                answer,
                at_least=at_least,
                at_most=at_most,
                lograft_only=lograft_only,
            )
            check(found)
            return dict.fromkeys(items, found)

        return (await self.all_of([""], locate or self.anywhere, ask))[""]

    async def _attempt(
        self, items: Sequence[K], locate: Locate[K], ask: Ask[K, T]
    ) -> dict[K, T | ClientError]:
        try:
            places = await locate(items)
        except ClientError as error:
            if isinstance(error, ConnectionFailed):
                self._core.network.forget_brokers()  # Those whom we know have gone.
            return dict.fromkeys(items, error)
        outcomes: dict[K, T | ClientError] = {}
        by_node: dict[Node | None, list[K]] = {}
        for item in items:
            place = places[item]
            if isinstance(place, ClientError):
                outcomes[item] = place
            else:
                by_node.setdefault(place, []).append(item)
        for answers in await asyncio.gather(
            *(_asked(ask, node, those) for node, those in by_node.items())
        ):
            outcomes.update(answers)
        return outcomes

    async def ask(
        self,
        node: Node | None,
        request: Request,
        answer: type[R],
        *,
        at_least: int = 0,
        at_most: int | None = None,
        lograft_only: bool = False,
    ) -> R:
        return await self._core.network.ask(
            request,
            answer,
            node=node,
            at_least=at_least,
            at_most=at_most,
            lograft_only=lograft_only,
        )

    # ── places ───────────────────────────────────────────────────────────────────────────────

    async def anywhere(self, items: Sequence[K]) -> Places[K]:
        return dict.fromkeys(items, None)

    async def controller(self, items: Sequence[K]) -> Places[K]:
        """Brokers hand on to the active controller; where controllers are asked themselves, it must
        be the active one."""
        place: Node | None
        if self._settings.asks_controllers:
            place = await self._active_controller()
        else:
            told = await self.metadata([])
            known = self._core.network.brokers
            place = told.controller_id if told.controller_id in known else None
        return dict.fromkeys(items, place)

    async def brokers(self, ids: Sequence[int]) -> Places[int]:
        """With bootstrap.controllers: controllers."""
        if self._settings.asks_controllers:
            await self._learn_controllers()
        else:
            await self.metadata([])
        there = self._core.network.brokers
        role = "controller" if self._settings.asks_controllers else "broker"
        return {one: one if one in there else BrokerMissing(one, there, role) for one in ids}

    async def leaders(self, partitions: Sequence[TopicPartition]) -> Places[TopicPartition]:
        told = await self.metadata(sorted({one.topic for one in partitions}))
        topics = {topic.name: topic for topic in told.topics}
        places: dict[TopicPartition, Node | ClientError] = {}
        for one in partitions:
            topic = topics[one.topic]
            if topic.error_code:
                places[one] = broker_error(topic.error_code, f"topic {one.topic!r}")
                continue
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            if one.partition not in leaders:
                places[one] = broker_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {one.topic!r} has {len(leaders)} partitions, so there is no partition"
                    f" {one.partition}",
                )
            elif leaders[one.partition] not in self._core.network.brokers:
                places[one] = broker_error(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"{one} has no leader now"
                )
            else:
                places[one] = leaders[one.partition]
        return places

    async def group_coordinators(self, groups: Sequence[str]) -> Places[str]:
        return await self._coordinators(GROUP, "group", groups)

    async def transaction_coordinators(self, ids: Sequence[str]) -> Places[str]:
        return await self._coordinators(TRANSACTION, "transactional id", ids)

    async def _coordinators(self, kind: int, word: str, keys: Sequence[str]) -> Places[str]:
        answer = await self.ask(
            None,
            FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys)),
            FindCoordinatorResponse,
            at_least=4,
        )
        places: dict[str, Node | ClientError] = {}
        for one in answer.coordinators:
            if one.error_code:
                places[one.key] = broker_error(
                    one.error_code, f"the coordinator of {word} {one.key!r}", one.error_message
                )
                continue
            address = Address(one.host, one.port)
            known = self._core.network.brokers.get(one.node_id)
            if known is None or known.address != address:
                self._core.network.learn_broker(Broker(one.node_id, address))
            places[one.key] = one.node_id
        return places

    async def _active_controller(self) -> int:
        controller_id = await self._learn_controllers()
        if controller_id not in self._core.network.brokers:
            raise broker_error(ErrorCode.NOT_CONTROLLER, "no controller is active now")
        return controller_id

    async def _learn_controllers(self) -> int:
        """Returns the id of the active one, -1 if none is known."""
        answer = await self.ask(
            None,
            DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS),
            DescribeClusterResponse,
            at_least=1,
        )
        raise_for(answer.error_code, "the controllers", answer.error_message)
        self._core.network.learn(
            [Broker(one.broker_id, Address(one.host, one.port)) for one in answer.brokers]
        )
        return answer.controller_id

    async def metadata(self, topics: Iterable[str | UUID] | None) -> MetadataResponse:
        """What a broker knows now; None: of all topics."""
        if self._settings.asks_controllers:
            raise UnsupportedByBroker(
                "only brokers can answer this: give bootstrap.servers instead of"
                " bootstrap.controllers"
            )
        asked = (
            None
            if topics is None
            else [
                MetadataRequestTopic(name=one)
                if isinstance(one, str)
                else MetadataRequestTopic(name=None, topic_id=one)
                for one in topics
            ]
        )
        by_id = any(one.name is None for one in asked or ())
        answer = await self.ask(
            None,
            MetadataRequest(topics=asked, allow_auto_topic_creation=False),
            MetadataResponse,
            at_least=12 if by_id else 4,
        )
        raise_for(answer.error_code, "metadata")
        if not answer.brokers:
            raise broker_error(ErrorCode.BROKER_NOT_AVAILABLE, "metadata names no brokers")
        self._core.network.learn(
            [Broker(one.node_id, Address(one.host, one.port), one.rack) for one in answer.brokers]
        )
        return answer

    async def broker_ids(self) -> list[int]:
        async def ask(_node: Node | None, items: Sequence[str]) -> dict[str, list[int]]:
            told = await self.metadata([])
            return dict.fromkeys(items, sorted(one.node_id for one in told.brokers))

        return (await self.all_of([""], self.anywhere, ask))[""]


def settled(outcomes: Mapping[K, T | ClientError]) -> dict[K, T]:
    """What came of each; raises SomeFailed, or the error itself where all failed of the same."""
    done: dict[K, T] = {}
    failed: dict[K, ClientError] = {}
    for item, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            failed[item] = outcome
        else:
            done[item] = outcome
    if failed and not done and len({str(error) for error in failed.values()}) == 1:
        raise next(iter(failed.values()))
    if failed:
        raise SomeFailed(done, failed)
    return done


async def _asked(
    ask: Ask[K, T], node: Node | None, items: Sequence[K]
) -> Mapping[K, T | ClientError]:
    try:
        return await ask(node, items)
    except ClientError as error:
        return dict.fromkeys(items, error)


def _may_pass(error: ClientError, failures: int) -> bool:
    if isinstance(error, BrokerMissing) or (
        isinstance(error, BrokerError) and error.code in _MISSING
    ):
        return failures < _MISSING_ATTEMPTS_MAX
    if isinstance(error, BrokerError):
        return error.code in _PASSING
    return error.is_retriable


def _given_up(error: Any, settings: AdminSettings) -> TimedOut:
    timed_out = TimedOut(f"{error}; given up after {settings.patience_ms / 1000:.0f} s")
    timed_out.__cause__ = error
    return timed_out
