"""controller_mutation_rate: how much of its client's quota one request uses.

The controller counts each partition that a request creates or deletes (KIP-599). Clients of older
versions get their changes and are muted afterwards; those of newer ones get
THROTTLING_QUOTA_EXCEEDED for the topics beyond the quota, with the time after which to try again.
"""

from typing import Final

from lograft.api.context import Context
from lograft.model.errors import ErrorCode, Rejected

EXCEEDED: Final = "The throttling quota has been exceeded."


class MutationQuota:
    """The use by one request."""

    def __init__(self, context: Context, *, strict_since: int) -> None:
        """`strict_since`: the first version in which topics are rejected."""
        router = context.router
        quotas = None if router is None else router.quotas
        self._usage = None if quotas is None else quotas.mutations
        self._clock = context.shared.clock
        self._user = context.principal.partition(":")[2]
        self._client_id = context.client_id or ""
        self._is_strict = context.api_version >= strict_since
        self._throttle_ms = 0
        self._recorded_ms = 0

    def admit(self, partitions: int) -> None:
        """Counts the partitions of one topic, before they change. Raises Rejected."""
        usage = self._usage
        if usage is None or not usage.is_limited:
            return
        now_ms = self._clock.mono_ms()
        throttle_ms = usage.record(
            self._user, self._client_id, partitions, now_ms, is_strict=self._is_strict
        )
        if throttle_ms:
            self._throttle_ms, self._recorded_ms = throttle_ms, now_ms
            if self._is_strict:
                raise Rejected(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)

    def finish(self) -> int:
        """Returns the throttle time for the response, which may have waited since the change."""
        if not self._throttle_ms:
            return 0
        waited_ms = self._clock.mono_ms() - self._recorded_ms
        throttle_ms = max(0, self._throttle_ms - waited_ms)
        if throttle_ms and self._usage is not None:
            self._usage.count_throttled(throttle_ms)
        return throttle_ms
