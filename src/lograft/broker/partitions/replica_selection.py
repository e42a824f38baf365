"""Selection of the replica from which a consumer reads: `replica.selector.class` (KIP-392).

Kafka's two selectors are supported by their class names: the leader, which is the default, and the
nearest replica by rack. Both select among the in-sync replicas that contain the offset.
"""

from collections.abc import Callable
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.model.types import NodeId, Offset
from lograft.replication.replica_view import ReplicaStatus

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def is_rack_aware(selector: str | None) -> bool:
    """Whether the selector is rack-aware. Raises InvalidConfig for an unsupported class."""
    if selector in (None, "", LEADER_SELECTOR):
        return False
    if selector == RACK_AWARE_SELECTOR:
        return True
    raise InvalidConfig(
        f"replica.selector.class={selector} is not supported: use {RACK_AWARE_SELECTOR} or"
        f" {LEADER_SELECTOR}"
    )


def nearest_replica(
    statuses: list[ReplicaStatus],
    *,
    client_rack: str,
    offset: Offset,
    rack_of: Callable[[NodeId], str | None],
) -> NodeId | None:
    """Returns the follower to read from, or None for the leader, which is the first of `statuses`.
    Of several followers in the client's rack, returns the one with the smallest lag."""
    leader = statuses[0]
    if rack_of(leader.node_id) == client_rack:
        return None
    near = [
        status
        for status in statuses[1:]
        if status.in_sync
        and status.log_start_offset <= offset <= status.end_offset
        and rack_of(status.node_id) == client_rack
    ]
    if not near:
        return None
    best = max(near, key=lambda status: (status.end_offset, status.last_caught_up_ms))
    return best.node_id
