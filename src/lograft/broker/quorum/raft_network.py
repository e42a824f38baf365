"""Requests of the driver to the other replicas of the metadata quorum.

Addresses of nodes come from the voter set in the log, from responses of other nodes and from the
settings. Bootstrap servers have addresses but no known ids, and get negative ids, as in Kafka.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final

from lograft.broker.errors import InconsistentClusterId, PeerLost, PeerUnreachable, UnusableResponse
from lograft.broker.links.peers import Peers
from lograft.broker.quorum.outgoing_rpcs import RequestContext, request_to_wire, response_from_wire
from lograft.consensus import messages as core
from lograft.consensus.types import VoterSet
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Address, Runtime, Task
from lograft.model.types import NodeId

LOGGER: Final = logging.getLogger(__name__)

#: Id of the first bootstrap server; the ids of the others are lower.
BOOTSTRAP_ID: Final = -100
#: Maximum number of addresses from responses. The quorum is small, and brokers are not part of it.
ADDRESSES_MAX: Final = 1_000

IN_FLIGHT: Final = Gauge(
    "lograft_quorum_requests_in_flight",
    "In-flight requests to other members of the metadata quorum.",
)


class RaftNetwork:
    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        *,
        listener: str,
        bootstrap: tuple[Address, ...],
        request_timeout_ms: int,
        on_response: Callable[[core.Response], None],
        on_disconnected: Callable[[NodeId], None],
        on_unreachable: Callable[[NodeId], None],
    ) -> None:
        """`listener` is the name of the controllers' listener. `on_disconnected`: the response of
        that node is lost; `on_unreachable`: its process has terminated."""
        self._runtime = runtime
        self._peers = peers
        self._listener = listener
        self._request_timeout_ms = request_timeout_ms
        self._on_response = on_response
        self._on_disconnected = on_disconnected
        self._on_unreachable = on_unreachable
        self._bootstrap = {
            NodeId(BOOTSTRAP_ID - number): address for number, address in enumerate(bootstrap)
        }
        self._learned: dict[NodeId, Address] = {}
        self._tasks: dict[int, Task] = {}
        #: Coroutines whose task has not started yet: cancelling the task would leave them unclosed.
        self._unstarted: dict[int, Coroutine[Any, Any, None]] = {}
        self._tasks_started = 0
        self._idle = asyncio.Event()
        self._logged_reasons: dict[NodeId, str] = {}

    @property
    def bootstrap_ids(self) -> tuple[NodeId, ...]:
        return tuple(self._bootstrap)

    def learn(self, addresses: Mapping[NodeId, Address]) -> None:
        """Stores addresses from a response, which are newer than those in the log."""
        self._learned.update(addresses)
        while len(self._learned) > ADDRESSES_MAX:
            del self._learned[next(iter(self._learned))]

    def forget(self) -> None:
        """Discards addresses from responses: the voter set in the log is newer."""
        self._learned.clear()

    def address_of(self, node_id: NodeId, voters: VoterSet) -> Address | None:
        found = self._bootstrap.get(node_id) or self._learned.get(node_id)
        if found is not None:
            return found
        voter = voters.find(node_id)
        if voter is None:
            return None
        ends = voter.endpoints
        end = next((each for each in ends if each.name.upper() == self._listener), None)
        return None if end is None else Address(end.host, end.port)

    def send(
        self, to: NodeId, request: core.PeerRequest, *, context: RequestContext, voters: VoterSet
    ) -> None:
        address = self.address_of(to, voters)
        if address is None:
            self.log_once(to, f"the address of controller {to} is unknown")
            return
        self.spawn(self._exchange(to, address, request, context), name="quorum request")

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Starts a task that is cancelled with the driver."""
        self._tasks_started += 1
        number = self._tasks_started
        self._unstarted[number] = work
        self._tasks[number] = self._runtime.spawn(self._run_tracked(number, work), name=name)

    def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        self._tasks.clear()
        for work in self._unstarted.values():
            work.close()
        self._unstarted.clear()

    async def _run_tracked(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            del self._unstarted[number]
            await work
        finally:
            self._tasks.pop(number, None)
            if not self._tasks:
                self._idle.set()

    async def _exchange(
        self, to: NodeId, address: Address, request: core.PeerRequest, context: RequestContext
    ) -> None:
        wire = request_to_wire(request, context)
        waits = isinstance(request, core.FetchRequest | core.FetchSnapshotRequest)
        try:
            received = await self._peers.request(
                address,
                wire.message,
                wire.versions,
                wire.response_type,
                timeout_ms=self._request_timeout_ms,
                lane="raft fetch" if waits else "raft",
                listener=self._listener,
            )
            response, addresses = response_from_wire(request, to, received)
        except PeerUnreachable as error:
            self.log_once(to, str(error))
            if error.refused:
                self._on_unreachable(to)
        except PeerLost as error:
            self.log_once(to, str(error))
            self._on_disconnected(to)
        except UnusableResponse as error:
            level = logging.ERROR if isinstance(error, InconsistentClusterId) else logging.INFO
            self.log_once(to, f"cannot use the response of {address}: {error}", level=level)
        else:
            self._logged_reasons.pop(to, None)
            self.learn(addresses)
            self._on_response(response)

    def log_once(self, to: NodeId, reason: str, *, level: int = logging.INFO) -> None:
        """Logs a failure, but not again for the same reason, since requests are retried often."""
        if self._logged_reasons.get(to) != reason:
            self._logged_reasons[to] = reason
            LOGGER.log(level, "metadata quorum: %s", reason)

    async def drain(self) -> None:
        """Waits until no request is in flight."""
        while self._tasks:
            self._idle.clear()
            await self._idle.wait()

    def collect_samples(self) -> Iterator[Sample]:
        yield IN_FLIGHT.sample(len(self._tasks))
