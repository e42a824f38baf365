"""The other replicas of the metadata quorum as the driver reaches them.

Knows where nodes are: from the voters in the log, from what other nodes say, from the settings.
Bootstrap servers have addresses and no known ids; here they have negative numbers, as in Kafka.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final

from lograft.broker.errors import ForeignCluster, PeerLost, PeerUnreachable, UnusableResponse
from lograft.broker.links.peers import Peers
from lograft.broker.quorum.outgoing_rpcs import Asker, answer_from_wire, request_to_wire
from lograft.consensus import messages as core
from lograft.consensus.types import VoterSet
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Address, Runtime, Task
from lograft.model.types import NodeId

LOGGER: Final = logging.getLogger(__name__)

#: The first bootstrap server's; the next have the next lower ones.
BOOTSTRAP_ID: Final = -100
#: Addresses learned from others; the quorum is small, and its brokers are no part of it.
LEARNED_MAX: Final = 1_000

IN_FLIGHT: Final = Gauge(
    "lograft_quorum_requests_in_flight", "Requests to other members of the metadata quorum."
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
        """`listener` is the name of the controllers' listener. `on_disconnected`: what that
        node was asked gets no answer; `on_unreachable`: its process is gone."""
        self._runtime = runtime
        self._peers = peers
        self._listener = listener
        self._request_timeout_ms = request_timeout_ms
        self._on_answer = on_response
        self._on_disconnected = on_disconnected
        self._on_unreachable = on_unreachable
        self._bootstrap = {
            NodeId(BOOTSTRAP_ID - number): address for number, address in enumerate(bootstrap)
        }
        self._learned: dict[NodeId, Address] = {}
        self._tasks: dict[int, Task] = {}
        #: Work of tasks that have not had their first turn: a cancelled one never begins it.
        self._unbegun: dict[int, Coroutine[Any, Any, None]] = {}
        self._tasks_begun = 0
        self._idle = asyncio.Event()
        self._complaints: dict[NodeId, str] = {}

    @property
    def bootstrap_ids(self) -> tuple[NodeId, ...]:
        return tuple(self._bootstrap)

    def learn(self, addresses: Mapping[NodeId, Address]) -> None:
        """What another node says about where nodes are is newer than the log."""
        self._learned.update(addresses)
        while len(self._learned) > LEARNED_MAX:
            del self._learned[next(iter(self._learned))]

    def forget(self) -> None:
        """The voters changed: what was learned may be older than the log now."""
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
        self, to: NodeId, request: core.PeerRequest, *, asker: Asker, voters: VoterSet
    ) -> None:
        address = self.address_of(to, voters)
        if address is None:
            self.complain(to, f"nobody has told where controller {to} is")
            return
        self.spawn(self._exchange(to, address, request, asker), name="quorum request")

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """A task that ends with the driver."""
        self._tasks_begun += 1
        number = self._tasks_begun
        self._unbegun[number] = work
        self._tasks[number] = self._runtime.spawn(self._forgetting(number, work), name=name)

    def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        self._tasks.clear()
        for work in self._unbegun.values():
            work.close()
        self._unbegun.clear()

    async def _forgetting(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            del self._unbegun[number]
            await work
        finally:
            self._tasks.pop(number, None)
            if not self._tasks:
                self._idle.set()

    async def _exchange(
        self, to: NodeId, address: Address, request: core.PeerRequest, asker: Asker
    ) -> None:
        wire = request_to_wire(request, asker)
        waits = isinstance(request, core.FetchRequest | core.FetchSnapshotRequest)
        try:
            answer = await self._peers.request(
                address,
                wire.message,
                wire.versions,
                wire.answer,
                timeout_ms=self._request_timeout_ms,
                lane="raft fetch" if waits else "raft",
                listener=self._listener,
            )
            response, addresses = answer_from_wire(request, to, answer)
        except PeerUnreachable as error:
            self.complain(to, str(error))
            if error.refused:
                self._on_unreachable(to)
        except PeerLost as error:
            self.complain(to, str(error))
            self._on_disconnected(to)
        except UnusableResponse as error:
            level = logging.ERROR if isinstance(error, ForeignCluster) else logging.INFO
            self.complain(to, f"{address} is of no use: {error}", level=level)
        else:
            self._complaints.pop(to, None)
            self.learn(addresses)
            self._on_answer(response)

    def complain(self, to: NodeId, reason: str, *, level: int = logging.INFO) -> None:
        """Once for each reason: what is tried again a hundred times fails a hundred times."""
        if self._complaints.get(to) != reason:
            self._complaints[to] = reason
            LOGGER.log(level, "metadata quorum: %s", reason)

    async def drain(self) -> None:
        """Until every request has its answer, or has none."""
        while self._tasks:
            self._idle.clear()
            await self._idle.wait()

    def collect_samples(self) -> Iterator[Sample]:
        yield IN_FLIGHT.sample(len(self._tasks))
