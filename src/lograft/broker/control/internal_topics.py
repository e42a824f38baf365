"""Internal topics with the state of coordinators, created when a client first needs them."""

from collections.abc import Callable
from typing import Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.control.topic_creation import CREATE_TOPICS_VERSIONS, CREATION_WAIT_MS, LANE
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import ControllerLink
from lograft.coordination.errors import CoordinatorNotAvailable
from lograft.model.errors import ErrorCode
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def _offsets_topic(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        name=OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs=_configs(
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
        ),
    )


def _transactions_topic(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        name=TRANSACTIONS_TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs=_configs(
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            }
        ),
    )


def _configs(values: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]


TOPICS: Final[dict[str, Callable[[BrokerConfig], CreatableTopic]]] = {
    OFFSETS_TOPIC: _offsets_topic,
    TRANSACTIONS_TOPIC: _transactions_topic,
}


class InternalTopics:
    def __init__(self, metadata: ClusterMetadata, link: ControllerLink) -> None:
        self._metadata = metadata
        self._link = link
        #: Topics that this broker is creating: further requests only wait for them.
        self._in_creation: set[str] = set()

    async def ensure(self, topic: str) -> None:
        """Creates the topic if necessary, and returns when the image contains it. Raises
        CoordinatorNotAvailable, after which the client retries."""
        metadata = self._metadata
        if topic in metadata.image.topic_ids:
            return
        if topic not in self._in_creation:
            self._in_creation.add(topic)
            try:
                await self._create(topic)
            finally:
                self._in_creation.remove(topic)
        await metadata.wait_image(
            lambda image: topic in image.topic_ids, timeout_ms=CREATION_WAIT_MS
        )
        if topic not in metadata.image.topic_ids:
            raise CoordinatorNotAvailable(f"{topic} is being created")

    async def _create(self, topic: str) -> None:
        request = CreateTopicsRequest(
            topics=[TOPICS[topic](self._metadata.config)], timeout_ms=CREATION_WAIT_MS
        )
        try:
            reply = await self._link.request(
                request,
                CREATE_TOPICS_VERSIONS,
                CreateTopicsResponse,
                timeout_ms=CREATION_WAIT_MS,
                lane=LANE,
            )
        except ControllerUnreachable as error:
            raise CoordinatorNotAvailable(f"{topic} cannot be created: {error}") from None
        result = reply.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise CoordinatorNotAvailable(f"{topic} cannot be created: {result.error_message}")
