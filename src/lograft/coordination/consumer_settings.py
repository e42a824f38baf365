"""The settings of a consumer group: the broker's defaults and the group's overrides."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ResourceType
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.broker_table import CONSUMER_ASSIGNORS


class ConsumerSettings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    #: Minimum time between two computations of the target.
    assignment_interval_ms: int
    regex_refresh_interval_ms: int
    members_max: int
    #: In order of preference: the first is used if no member prefers one.
    assignors: tuple[str, ...]
    may_upgrade: bool
    may_downgrade: bool

    @classmethod
    def of(cls, group_id: str, config: BrokerConfig, image: MetadataImage) -> "ConsumerSettings":
        own = image.config_of(ResourceType.GROUP, group_id)

        def number(name: str, broker: int) -> int:
            return int(own.get(name, broker))

        policy = config.group_consumer_migration_policy.lower()
        return cls(
            number("consumer.session.timeout.ms", config.group_consumer_session_timeout_ms),
            number("consumer.heartbeat.interval.ms", config.group_consumer_heartbeat_interval_ms),
            number("consumer.assignment.interval.ms", config.group_consumer_assignment_interval_ms),
            config.group_consumer_regex_refresh_interval_ms,
            config.group_consumer_max_size,
            tuple(CONSUMER_ASSIGNORS[name] for name in config.group_consumer_assignors),
            may_upgrade=policy in ("upgrade", "bidirectional"),
            may_downgrade=policy in ("downgrade", "bidirectional"),
        )

    def is_too_early(self, target_ms: int, wall_ms: int) -> bool:
        """Whether a new target must not be computed yet, so that many members that join at the same
        time are assigned together."""
        return bool(target_ms) and 0 <= wall_ms - target_ms < self.assignment_interval_ms

    def preferred_assignor(self, preferences: Iterable[str | None]) -> str:
        """The assignor that most members prefer; on a tie, the first one in the configuration."""
        votes = Counter(name for name in preferences if name in self.assignors)
        return max(self.assignors, key=lambda name: votes[name])
