"""Client metrics subscriptions (KIP-714): which metrics clients push, and how often.

A subscription is a config resource of the type client-metrics with the settings `metrics`,
`interval.ms` and `match`. A client may match several: it pushes the metrics of all of them at the
shortest of their intervals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from lograft.metadata.resource_configs import (
    CLIENT_METRICS_CONFIGS,
    check_client_metrics_configs,
    split_match,
)
from lograft.model.patterns import Pattern, compile_pattern

#: Represents all metrics, in the config and in the response to the client.
ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
#: A longer value matches no pattern: matching runs on the event loop, and clients choose their
#: client ids.
VALUE_LENGTH_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Subscription:
    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    #: Patterns by the attribute that they are matched with; all must match.
    match: Mapping[str, Pattern]

    def is_for(self, client: Mapping[str, str]) -> bool:
        return all(
            name in client
            and len(client[name]) <= VALUE_LENGTH_MAX
            and bool(pattern.matches(client[name]))
            for name, pattern in self.match.items()
        )


class Selection(NamedTuple):
    """The metrics that a client is subscribed to."""

    metrics: tuple[str, ...]
    interval_ms: int

    def subscription_id(self, client_instance_id: UUID) -> int:
        """Changes with the metrics and the interval. A client that pushes with another id has to
        request its subscription again."""
        text = f"{self.metrics}{self.interval_ms}".encode()
        number = crc32c(text) ^ crc32c(client_instance_id.bytes)
        return number - (1 << 32) if number >= 1 << 31 else number


def parse_subscription(name: str, values: Mapping[str, str]) -> Subscription:
    """Raises Rejected for a pattern that is not valid in RE2; Apache Kafka may have stored one."""
    check_client_metrics_configs(values)
    metrics, interval_ms, match = (
        key.parse(values.get(key.name, key.default))
        for key in map(CLIENT_METRICS_CONFIGS.__getitem__, ("metrics", "interval.ms", "match"))
    )
    assert isinstance(metrics, tuple)
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    patterns = {key: compile_pattern(expression) for key, expression in map(split_match, match)}
    return Subscription(name, metrics, interval_ms, patterns)


def select_metrics(subscriptions: Iterable[Subscription], client: Mapping[str, str]) -> Selection:
    """`client` has the attributes that patterns are matched with, by the names in `MATCH_KEYS`."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions:
        if subscription.is_for(client):
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS}
    return Selection(tuple(sorted(metrics)), interval_ms)
