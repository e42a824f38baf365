"""Parses `host:port:id`, the address of a server on the command line."""

from typing import Final, NamedTuple

from lograft.model.errors import InvalidInput
from lograft.model.seams import Address
from lograft.model.types import NodeId

PEERS_MAX: Final = 100
_NODE_ID_MAX: Final = 2**31 - 1


class Peer(NamedTuple):
    node_id: NodeId
    address: Address

    def __str__(self) -> str:
        return f"{self.address}:{self.node_id}"


def parse_peer(text: str) -> Peer:
    parts = text.strip().rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not (parts[1].isdigit() and parts[2].isdigit()):
        raise InvalidInput(f"{text!r} is not host:port:id, for example localhost:7001:1")
    port, node_id = int(parts[1]), int(parts[2])
    if not 0 < port < 65_536:
        raise InvalidInput(f"{text!r}: the port {port} is not between 1 and 65535")
    if node_id > _NODE_ID_MAX:
        raise InvalidInput(f"{text!r}: the id {node_id} is above {_NODE_ID_MAX}")
    host = parts[0].removeprefix("[").removesuffix("]")
    return Peer(NodeId(node_id), Address(host, port))


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Ascending by id, so that the order is the same on all servers."""
    named = [parse_peer(part) for part in text.split(",") if part.strip()]
    peers = sorted(named, key=lambda peer: peer.node_id)
    if not peers:
        raise InvalidInput("no servers specified: expected host:port:id,host:port:id,host:port:id")
    if len(peers) > PEERS_MAX:
        raise InvalidInput(f"{len(peers)} servers exceed the maximum of {PEERS_MAX}")
    for what, seen in (
        ("id", [peer.node_id for peer in peers]),
        ("address", [peer.address for peer in peers]),
    ):
        if len(set(seen)) < len(peers):
            raise InvalidInput(f"{text!r} contains an {what} twice")
    return tuple(peers)
