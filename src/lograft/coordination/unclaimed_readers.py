"""Groups that read a topic with `subscription.mode=ptp` without having claimed it.

A group is admitted to such a topic only with a claim (`broker/coordinators/topic_claims.py`). But
a group that already has members can lack the claim: they subscribed before the topic or its mode
existed, the operator changed the config, or another group claimed the topic between the departure
of the last member and the join of the next one. This coordinator fences those members as soon as
it learns of the claim. When they rejoin, their group claims the topic or is rejected.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from lograft.coordination.types import NOTHING, CoordinatorResult
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.topic_claims import find_unclaimed
from lograft.metadata.types import ResourceType

if TYPE_CHECKING:
    from lograft.coordination.group_shard import GroupShard

AT_ONCE: Final = 0


class UnclaimedReaders:
    def __init__(self, shard: "GroupShard") -> None:
        self._shard = shard

    def on_loaded(self) -> None:
        self._fence_soon(set(self._shard.context.image().claims))

    def on_image(self, delta: MetadataDelta) -> None:
        claims = self._shard.context.image().claims
        if claims:
            self._fence_soon(
                {
                    resource.name
                    for resource in delta.configs
                    if resource.type == ResourceType.TOPIC and resource.name in claims
                }
            )

    def _fence_soon(self, topics: set[str]) -> None:
        """Schedules one step for each group; a step whose append failed is repeated."""
        if not topics:
            return
        for group_id in self._shard.groups:
            if self._is_foreign(group_id, topics):
                self._shard.deadlines.add(AT_ONCE, partial(self._fence, group_id, topics))

    def _is_foreign(self, group_id: str, topics: set[str]) -> bool:
        group = self._shard.groups.get(group_id)
        if group is None or group.is_empty():
            return False
        missing = find_unclaimed(self._shard.context.image(), group_id, topics)
        return any(group.reads(topic) for topic in missing)

    def _fence(self, group_id: str, topics: set[str], now_ms: int) -> CoordinatorResult:
        if not self._is_foreign(group_id, topics):
            return NOTHING
        return self._shard.groups[group_id].fence_all(now_ms)
