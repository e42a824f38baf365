"""Topics and partitions that come to be because someone asked for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lograft.broker.errors import NotController
from lograft.metadata.errors import Refused
from lograft.metadata.image import MetadataImage
from lograft.metadata.partitions import grow_on_demand as decide_growth
from lograft.metadata.topics import auto_create_topics
from lograft.model.errors import ErrorCode

if TYPE_CHECKING:
    from lograft.broker.broker import Broker

#: How long a request waits for what it caused to be created; clients ask again anyway.
CREATION_WAIT_MS: Final = 5_000


async def create_on_demand(broker: "Broker", names: Sequence[str]) -> dict[str, int]:
    """Creates topics with the broker's defaults and waits until the image has them. Returns the
    error code of each that could not be made."""
    try:
        reply = await broker.controller.submit(
            lambda image: auto_create_topics(
                image, names, config=broker.config, new_id=broker.runtime.randomness.uuid
            )
        )
    except Refused as refusal:
        return dict.fromkeys(names, refusal.code)
    except NotController:
        return dict.fromkeys(names, ErrorCode.leader_not_available)
    refused = {
        topic.name: topic.error_code
        for topic in reply.topics
        # Another client was faster: the topic is as good as ours.
        if topic.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists)
    }
    wanted = [name for name in names if name not in refused]
    await broker.wait_image(
        lambda image: all(name in image.topic_ids for name in wanted),
        timeout_ms=CREATION_WAIT_MS,
    )
    return refused


async def grow_on_demand(broker: "Broker", topic: str, index: int) -> None:
    """Grows a topic that was created on demand up to partition `index`, within its limit. Refuses
    with the reason otherwise."""
    await broker.controller.submit(lambda image: decide_growth(image, topic, index))

    def has_grown(image: MetadataImage) -> bool:
        known = image.topic(topic)
        return known is not None and index in known.partitions

    await broker.wait_image(has_grown, timeout_ms=CREATION_WAIT_MS)
