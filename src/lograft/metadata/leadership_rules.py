"""The rules for partition changes: which brokers may lead, how many replicas must be in sync, and
whether unclean elections are allowed."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import (
    ELR_VERSION,
    UNASSIGNED_DIRECTORY,
    PartitionState,
    ResourceType,
)
from lograft.model.errors import InvalidConfig
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.keys import ConfigValue
from lograft.model.settings.topic import TOPIC_CONFIGS
from lograft.model.types import NO_NODE

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ELECTIONS: Final = "unclean.leader.election.enable"

#: Brokers before 3.6-IV0 rely on a new leader epoch whenever the ISR shrinks (KAFKA-15021).
EPOCH_PER_SHRINK_UNTIL: Final = 12


class TopicRules(NamedTuple):
    #: As configured: a partition with fewer replicas needs only as many as it has.
    min_insync_replicas: int
    unclean_elections: bool


class LeadershipRules:
    """Created for each decision. `leaving` and `arriving` are brokers whose state the records of
    the decision change: the first may no longer lead, the second may already lead."""

    __slots__ = (
        "_active",
        "_defaults",
        "_image",
        "_rules",
        "elr_enabled",
        "epoch_per_shrink",
    )

    def __init__(
        self,
        image: MetadataImage,
        config: BrokerConfig,
        *,
        leaving: int = NO_NODE,
        arriving: int = NO_NODE,
    ) -> None:
        self._image = image
        self._active = {
            broker_id: None
            for broker_id, broker in image.brokers.items()
            if (broker.is_active or broker_id == arriving) and broker_id != leaving
        }
        self._rules: dict[str, TopicRules] = {}
        self._defaults = _cluster_rules(image, config)
        #: Whether eligible leader replicas (ELR, KIP-966) are tracked: replicas that left the ISR
        #: with all committed records.
        self.elr_enabled = image.features.get(ELR_VERSION, 0) >= 1
        self.epoch_per_shrink = image.metadata_version < EPOCH_PER_SHRINK_UNTIL

    def rules_of(self, topic: str) -> TopicRules:
        rules = self._rules.get(topic)
        if rules is None:
            overrides = self._image.config_of(ResourceType.TOPIC, topic)
            rules = _override_rules(self._defaults, overrides) if overrides else self._defaults
            self._rules[topic] = rules
        return rules

    def may_lead(
        self, partition: PartitionState, broker_id: int, directory: UUID | None = None
    ) -> bool:
        """Whether the broker is active and the replica's log directory is online. `directory` is
        the replica's directory if it differs from the partition's state."""
        if broker_id not in self._active:
            return False
        if directory is None:
            if broker_id not in partition.replicas:
                return True
            directory = partition.directories[partition.replicas.index(broker_id)]
        return self._image.brokers[broker_id].serves(directory)

    def default_directory(self, broker_id: int) -> UUID:
        broker = self._image.brokers.get(broker_id)
        return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory


def _cluster_rules(image: MetadataImage, config: BrokerConfig) -> TopicRules:
    """The defaults of topics without own configs, as this controller sees them: dynamic configs of
    this node, then of all nodes, then the properties file."""
    rules = TopicRules(
        config.topic_defaults.min_insync_replicas,
        config.topic_defaults.unclean_leader_election_enable,
    )
    for name in ("", str(config.node_id)):
        rules = _override_rules(rules, image.config_of(ResourceType.BROKER, name))
    return rules


def _override_rules(rules: TopicRules, values: dict[str, str]) -> TopicRules:
    number, allowed = valid_value(MIN_ISR, values), valid_value(UNCLEAN_ELECTIONS, values)
    if isinstance(number, int):
        rules = rules._replace(min_insync_replicas=number)
    if allowed is not None:
        rules = rules._replace(unclean_elections=bool(allowed))
    return rules


def valid_value(name: str, values: Mapping[str, str]) -> ConfigValue:
    """Returns None if the setting has no stored value, or an invalid one: Kafka's controllers store
    any value for brokers. Each node reports the values that it skips."""
    try:
        return TOPIC_CONFIGS[name].parse(values.get(name))
    except InvalidConfig:
        return None
