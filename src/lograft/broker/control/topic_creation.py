"""Automatic creation of topics and partitions that a client requests."""

from collections.abc import Sequence
from typing import Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import ControllerLink
from lograft.metadata.auto_creation import creation_request, growth_request
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.apis import Versions
from lograft.wire.messages.create_partitions import CreatePartitionsResponse
from lograft.wire.messages.create_topics import CreateTopicsResponse

#: How long a request waits for the creation; clients retry afterwards.
CREATION_WAIT_MS: Final = 5_000
CREATE_TOPICS_VERSIONS: Final = Versions(5, 7)
CREATE_PARTITIONS_VERSIONS: Final = Versions(2, 3)
LANE: Final = "create"


async def create_on_demand(
    metadata: ClusterMetadata, link: ControllerLink, names: Sequence[str]
) -> dict[str, int]:
    """Creates topics with the broker's defaults and waits until the image contains them. Returns
    the error codes of those that could not be created."""
    request = creation_request(names, config=metadata.config, timeout_ms=CREATION_WAIT_MS)
    try:
        reply = await link.request(
            request,
            CREATE_TOPICS_VERSIONS,
            CreateTopicsResponse,
            timeout_ms=CREATION_WAIT_MS,
            lane=LANE,
        )
    except ControllerUnreachable:
        return dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
    errors = {
        topic.name: topic.error_code
        for topic in reply.topics
        # TOPIC_ALREADY_EXISTS: another client was faster.
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
    created = [name for name in names if name not in errors]
    await metadata.wait_image(
        lambda image: all(name in image.topic_ids for name in created),
        timeout_ms=CREATION_WAIT_MS,
    )
    return errors


async def grow_on_demand(
    metadata: ClusterMetadata, link: ControllerLink, topic: str, index: int
) -> None:
    """Adds partitions up to `index`, to which a producer writes. Raises Rejected if the topic's
    settings do not allow that."""
    request = growth_request(metadata.image, topic, index, timeout_ms=CREATION_WAIT_MS)
    if request is None:
        return
    reply = await link.request(
        request,
        CREATE_PARTITIONS_VERSIONS,
        CreatePartitionsResponse,
        timeout_ms=CREATION_WAIT_MS,
        lane=LANE,
    )
    result = reply.results[0]
    # INVALID_PARTITIONS: another client was faster.
    if result.error_code not in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
        raise Rejected(ErrorCode(result.error_code), result.error_message or "no reason given")

    def has_grown(image: MetadataImage) -> bool:
        known = image.topic(topic)
        return known is not None and index in known.partitions

    await metadata.wait_image(has_grown, timeout_ms=CREATION_WAIT_MS)
