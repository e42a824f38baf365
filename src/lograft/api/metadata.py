"""Metadata, versions 0-13: brokers, topics, partitions and leaders, from this broker's image.

Topics that do not exist are created if `auto.create.topics.enable` and the request allow it; the
response then includes them. In v0 an empty list means all topics, in later versions null does. v5:
offline replicas. v7: leader epochs. v8: authorized operations on request. v10: topic ids. v12:
topics by id. v13: a top-level error code, which is always 0 here.
"""

from collections.abc import Collection, Container, Coroutine
from typing import Any, Final
from uuid import UUID

from lograft.api.authorization import authorized_operations, cluster_operations, find_denied
from lograft.api.context import Api, Context
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.control.topic_creation import create_on_demand
from lograft.broker.shared_services import SharedServices
from lograft.metadata.image import MetadataImage
from lograft.metadata.topic_names import check_topic_name
from lograft.metadata.types import PartitionState, TopicState
from lograft.model.errors import ErrorCode, InvalidInput, Rejected
from lograft.model.types import INTERNAL_TOPICS, NO_NODE, ZERO_UUID
from lograft.security.authorization import (
    CLUSTER_CREATE,
    CLUSTER_DESCRIBE,
    TOPIC_CREATE,
    TOPIC_DESCRIBE,
    ResourceType,
)
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API: Final = Api(
    key=3,
    versions=range(14),
    needs=each_item(TOPIC_DESCRIBE, CLUSTER_CREATE, TOPIC_CREATE, CLUSTER_DESCRIBE),
)

IDS_SINCE: Final = 12
LISTENER_ERROR_SINCE: Final = 6


def handle(
    context: Context, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    version = context.api_version
    if request.topics is None or (version == 0 and not request.topics):
        return _build_response(context, request, {})
    names = []
    for topic in request.topics:
        if version < IDS_SINCE and (topic.name is None or topic.topic_id != ZERO_UUID):
            raise InvalidInput(f"Topic ids need Metadata version {IDS_SINCE} or later.")
        if topic.name is not None and topic.topic_id == ZERO_UUID:
            names.append(topic.name)
    metadata = context.broker.metadata
    image, rejected = metadata.image, dict[str, int]()
    missing = [name for name in dict.fromkeys(names) if name not in image.topic_ids]
    if missing:
        hidden = find_denied(context, TOPIC_DESCRIBE, missing, is_filter=True)
        rejected = {name: code for name in missing if (code := _name_error(name))}
        # Coordinators create the internal topics, with special settings.
        excluded = rejected.keys() | hidden | INTERNAL_TOPICS
        missing = [name for name in missing if name not in excluded]
        may_create = request.allow_auto_topic_creation and metadata.config.auto_create_topics_enable
        if missing and may_create:
            return _create_first(context, request, missing, rejected)
    if request.topics and len(image.brokers) > 1:
        return _wait_leader_change(context, request, rejected)
    return _build_response(context, request, rejected)


def error_response(request: MetadataRequest, code: ErrorCode, message: str) -> MetadataResponse:
    """Every topic gets the error; before v13 there is no top-level error code."""
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


async def _create_first(
    context: Context, request: MetadataRequest, missing: list[str], rejected: dict[str, int]
) -> MetadataResponse:
    uncreatable = find_denied(context, TOPIC_CREATE, missing, unless=CLUSTER_CREATE)
    rejected |= dict.fromkeys(uncreatable, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    missing = [name for name in missing if name not in uncreatable]
    if missing:
        rejected |= await create_on_demand(context.broker.metadata, context.broker.link, missing)
    return _build_response(context, request, rejected)


async def _wait_leader_change(
    context: Context, request: MetadataRequest, rejected: dict[str, int]
) -> MetadataResponse:
    """Waits for a pending change of leaders: a client that has lost its leader requests metadata at
    once and, if it gets the old leader, not again for seconds."""
    broker: Broker = context.broker
    await broker.replicas.suspect_brokers.wait_resolved(broker.leads_any)
    return _build_response(context, request, rejected)


def _name_error(name: str) -> int:
    try:
        check_topic_name(name)
    except Rejected as error:
        return error.code
    return 0


def _build_response(
    context: Context, request: MetadataRequest, rejected: dict[str, int]
) -> MetadataResponse:
    broker: Broker = context.broker
    image = broker.metadata.image
    version = context.api_version
    response = MetadataResponse(cluster_id=broker.cluster_id, controller_id=NO_NODE)
    for state in image.brokers.values():
        endpoint = broker.endpoint_of(state.broker_id, context.listener)
        if endpoint is not None:
            response.brokers.append(
                MetadataResponseBroker(
                    node_id=state.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=endpoint.rack,
                )
            )
    alive = dict.fromkeys(broker.node_id for broker in response.brokers)
    # As in Kafka, the controller id is also set on a listener that the brokers do not advertise.
    online = list(alive) or [
        broker_id for broker_id, state in image.brokers.items() if not state.fenced
    ]
    response.controller_id = any_broker(broker.shared, online)
    if request.topics is None or (version == 0 and not request.topics):
        hidden = find_denied(context, TOPIC_DESCRIBE, image.topic_ids, is_filter=True)
        response.topics = [
            _topic(state, alive, image, version)
            for state in image.topics.values()
            if state.name not in hidden
        ]
    else:
        # Each topic once: a request that repeats a large topic would have a huge response.
        requested = {(topic.topic_id, topic.name): topic for topic in request.topics}.values()
        response.topics = _named_topics(context, requested, image, rejected, alive)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = authorized_operations(
                    context, ResourceType.TOPIC, topic.name or ""
                )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _named_topics(
    context: Context,
    requested: Collection[MetadataRequestTopic],
    image: MetadataImage,
    rejected: dict[str, int],
    alive: Container[int],
) -> list[MetadataResponseTopic]:
    topics_found: list[tuple[MetadataRequestTopic, TopicState | None]] = []
    names = []
    for requested_topic in requested:
        if requested_topic.topic_id != ZERO_UUID:
            state = image.topics.get(requested_topic.topic_id)
        else:
            state = image.topic(requested_topic.name or "")
        topics_found.append((requested_topic, state))
        names.append(requested_topic.name if state is None else state.name)
    hidden = find_denied(context, TOPIC_DESCRIBE, filter(None, names))
    topics = []
    for name, (requested_topic, state) in zip(names, topics_found, strict=True):
        if name in hidden:
            topics.append(_denied_topic(requested_topic))
        elif state is None:
            topics.append(_unknown_topic(requested_topic.name, requested_topic.topic_id, rejected))
        else:
            topics.append(_topic(state, alive, image, context.api_version))
    return topics


def _denied_topic(requested: MetadataRequestTopic) -> MetadataResponseTopic:
    """Returns the topic as the request identifies it, without name or id that it does not have."""
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=requested.name if requested.topic_id == ZERO_UUID else None,
        topic_id=requested.topic_id,
    )


def any_broker(shared: SharedServices, alive: list[int]) -> int:
    """Returns the broker that clients see as the controller: any broker forwards their requests to
    it, and a random choice spreads the load."""
    return alive[shared.runtime.randomness.below(len(alive))] if alive else NO_NODE


def _unknown_topic(
    name: str | None, topic_id: UUID, rejected: dict[str, int]
) -> MetadataResponseTopic:
    if topic_id != ZERO_UUID:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
    code = rejected.get(name or "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(
    topic: TopicState, alive: Container[int], image: MetadataImage, version: int
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(index, state, alive, image, version)
            for index, state in topic.partitions.items()
        ],
    )


def _partition(
    index: int, state: PartitionState, alive: Container[int], image: MetadataImage, version: int
) -> MetadataResponsePartition:
    response = MetadataResponsePartition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=image.offline_replicas(state, alive),
    )
    if state.leader not in alive:
        # Since v6 a leader without an endpoint on this listener has its own error code.
        without_listener = state.leader in image.brokers and version >= LISTENER_ERROR_SINCE
        response.error_code = (
            ErrorCode.LISTENER_NOT_FOUND if without_listener else ErrorCode.LEADER_NOT_AVAILABLE
        )
        response.leader_id = NO_NODE
    elif version == 0:
        # Clients of v0 cannot resolve replicas that are not in the list of brokers.
        response.replica_nodes = [node for node in state.replicas if node in alive]
        response.isr_nodes = [node for node in state.isr if node in alive]
        if len(response.replica_nodes) < len(state.replicas):
            response.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return response
