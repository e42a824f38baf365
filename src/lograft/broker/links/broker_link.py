"""Requests from a broker to another one over its inter-broker listener, or to itself by a call.

Each request is sent once. What to do without a response is the caller's decision.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerUnreachable
from lograft.broker.links.peers import Peers
from lograft.model.seams import Address
from lograft.model.types import NodeId
from lograft.wire.apis import Versions
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)
LocalCall = Callable[[Message, int], Awaitable[Message]]


class BrokerLink:
    def __init__(
        self, me: NodeId, peers: Peers, *, listener: str, metadata: ClusterMetadata
    ) -> None:
        self.me = me
        self._listener = listener
        self._metadata = metadata
        self._peers = peers
        #: Handles a request of this node to itself; None on a node that is not a broker. Set by the
        #: node later, since the handlers need the broker, and the broker needs this link.
        self.call_local: LocalCall | None = None

    async def request(
        self,
        node_id: NodeId,
        message: Message,
        versions: Versions,
        response_type: type[R],
        *,
        timeout_ms: int,
        lane: str,
        lograft_only: bool = False,
    ) -> R:
        """Returns the response. Raises PeerUnreachable if the request was never sent, PeerLost if
        no response arrived."""
        if node_id == self.me and self.call_local is not None:
            return cast(R, await self.call_local(message, versions.newest))
        known = self._metadata.image.brokers.get(node_id)
        end = None if known is None else known.endpoint(self._listener)
        if end is None:
            raise PeerUnreachable(Address("", 0), f"broker {node_id} is not registered")
        return await self._peers.request(
            Address(end.host, end.port),
            message,
            versions,
            response_type,
            timeout_ms=timeout_ms,
            lane=lane,
            lograft_only=lograft_only,
            listener=self._listener,
        )
